"""heedful.inspection.experts: the shares are those of the gates; a model without experts is an error."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from workshop import heed, write_recipe

import heedful
from heedful.data.pairs import pairs
from heedful.data.splits import splits_of
from heedful.tasks.system import collate_one
from heedful.tasks.translation.predictor import Translator


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("experts")
    mixture = ("model.experts=4", "model.experts_used=2")
    assert heed("train", write_recipe(folder), *mixture, "training.steps=2", "--run", folder / "run") == 0
    return folder / "run"


def test_shares_are_those_of_the_gates(run: Path) -> None:
    worker = Translator.load(run)
    system, model = worker.system, worker.model
    result = heedful.inspection.experts(worker, sentences=5)
    chosen = torch.zeros(4)
    for pair in list(pairs(splits_of(worker.run.data).valid[0]))[:5]:
        ids = system.source_tokenizer.encode(pair.source), system.target_tokenizer.encode(pair.target)
        source, target_in = collate_one(system, *ids)
        with torch.inference_mode(), heedful.record(model, "encoder.0.feed_forward.gates") as recorded:
            model.step(target_in, model.start(source, None, room=0))
        chosen += (recorded["encoder.0.feed_forward.gates"] > 0).sum(0)
    layer = result.layers["encoder.0.feed_forward"]
    assert layer.choices == pytest.approx((chosen / chosen.sum()).tolist())
    assert layer.tokens == chosen.sum() / 2 and result.used == 2 and result.sentences == 5
    assert layer.max_over_mean == pytest.approx(max(layer.choices) * 4) and sum(layer.weight) == pytest.approx(1)
    assert "2.00 if every token is routed to the same 2" in result.text()


def test_a_model_without_experts_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert heed("train", write_recipe(tmp_path), "training.steps=2", "--run", tmp_path / "run") == 0
    assert heed("inspect", "experts", tmp_path / "run") == 2
    assert "this model has no experts" in capsys.readouterr().err
