"""A pruned run can be loaded, has the same outputs, can be trained on and pruned again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from workshop import heed, write_recipe

import heedful
from heedful.nn.gates import gates
from heedful.runs.prune import HeadSelection, prune
from heedful.training import checkpoint, retention

LINES = ["w1 w2 w3", "w7", "w19 w4 w4 w11 w2"]


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with gates; at the end some are closed and one is half open."""
    folder = tmp_path_factory.mktemp("gated")
    recipe, run = write_recipe(folder), folder / "run"
    assert heed("train", recipe, "training.gates.penalty=0.1", "training.average=ema", "search.max_extra=2", "--run", run) == 0
    path = run / "checkpoints" / "step-6"
    tensors, state = checkpoint.load(path)
    for stem in ("model", "average"):
        tensors[stem]["encoder.0.self_attention.out.log_a"] = torch.tensor([-4.0, 0.5])
        tensors[stem]["decoder.1.self_attention.out.log_a"] = torch.tensor([-4.0, -4.0])
    checkpoint.save(run / "checkpoints", 6, tensors, state)
    retention.point_best(run / "checkpoints", "step-4")  # in the best all gates are open
    return run


def model_of(run: Path) -> Any:
    model = heedful.load(run, "last").model
    assert isinstance(model, nn.Module)
    return model


def logits(model: Any) -> torch.Tensor:
    source, target = torch.tensor([[5, 6, 7, 2]]), torch.tensor([[1, 8, 9, 10, 11]])
    with torch.inference_mode():
        hidden = model.step(target, model.start(source, None, room=0)).hidden
        result: torch.Tensor = model.project(hidden)
    return result


def test_the_smaller_run_has_the_same_outputs_and_continues(
    gated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = tmp_path / "small"
    assert heed("prune", gated, "--out", small, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["heads"] == {"encoder": [1, 2], "decoder": [2, 0], "cross": [2, 2]}
    assert result["parameters"] < result["parameters_before"]
    assert (result["sentences"], result["translated"]) == (60, 4)  # the recipe's validation data, and task.validation_sentences
    assert_close(logits(model_of(small)), logits(model_of(gated)), atol=1e-5, rtol=0)
    assert not gates(model_of(small))
    assert heedful.load(small).predict(LINES) == heedful.load(gated, "last").predict(LINES)
    state = checkpoint.load_state(small / "checkpoints" / "step-6")
    assert state["metrics"] == result["figures"] and state["train_state"]["step"] == 6
    assert heed("evaluate", small, "--bootstrap", "0", "--json") == 0
    assert heed("train", small / "config.toml", "training.steps=8") == 0
    assert checkpoint.load_state(small / "checkpoints" / "step-8")["train_state"]["step"] == 8
    assert "| encoder | 4 | 3 | 1, 2 |" in (small / "README.md").read_text()


@pytest.mark.parametrize(
    ("first", "expected"),
    [(4, "(60 sentences, of which the first 4 were translated for bleu and chrf)"), (0, "(60 sentences)")],
)
def test_the_number_of_sentences_behind_a_score_is_printed(
    first: int, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    assert heed("train", recipe, f"task.validation_sentences={first}", "training.steps=2", "--run", run) == 0
    capsys.readouterr()
    assert heed("prune", run, "--out", tmp_path / "small", "--keep", "encoder=2", "--sentences", "4") == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("valid ")]
    assert line.endswith(expected) and " bleu " in line


def test_a_pruned_run_without_gates_can_be_pruned_by_a_ranking(gated: Path, tmp_path: Path) -> None:
    small = prune(gated, tmp_path / "small")
    for by in ("gradient", "ablation"):
        less = prune(small.run, tmp_path / by, HeadSelection({"encoder": 1, "cross": 0}, by=by, sentences=20))
        assert sum(less.heads["encoder"]) == 1 and less.heads["cross"] == (0, 0) and less.heads["decoder"] == (2, 0)
        assert len(heedful.load(less.run).predict(LINES)) == len(LINES)


def test_a_run_with_only_an_average_checkpoint_can_be_pruned(tmp_path: Path) -> None:
    run, small = tmp_path / "run", tmp_path / "small"
    assert heed("train", write_recipe(tmp_path), "training.average=last", "training.average_count=2", "--run", run) == 0
    for folder in retention.steps(run / "checkpoints"):
        shutil.rmtree(folder)
    retention.point_best(run / "checkpoints", "average")
    prune(run, small, HeadSelection({"encoder": 2}, sentences=4))
    assert sum(model_of(small).config.heads_by_kind["encoder"]) == 2


def test_a_head_without_effect_has_the_smallest_gradient(gated: Path, tmp_path: Path) -> None:
    """Its gate is closed, so no output depends on it."""
    pruned = prune(gated, tmp_path / "small", HeadSelection({"encoder": 3, "decoder": 2}, sentences=20))
    assert pruned.heads["encoder"] == (1, 2) and pruned.heads["decoder"] == (2, 0)
    assert_close(logits(model_of(pruned.run)), logits(model_of(gated)), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("arguments", "sentence", "code"),
    [
        (("--keep", "encoder"), "--keep: given 'encoder', expected kind=number, as in encoder=6", 2),
        (("--keep", "encoder=1", "--keep", "encoder=2"), "given encoder=1 and encoder=2, expected one number for each kind", 2),
        (("--keep", "encodr=2"), "unknown kind of heads 'encodr'; expected one of: encoder, decoder, cross", 2),
        (("--keep", "encoder=9"), "given 9 heads to keep of kind 'encoder', but the model has 4", 2),
        (("--keep", "encoder=1", "--by", "luck"), "unknown ranking 'luck'; expected one of: gradient, ablation", 2),
        (("--checkpoint", "step-5"), "step-5", 4),
    ],
)
def test_invalid_arguments_are_an_error(
    arguments: tuple[str, ...], sentence: str, code: int, gated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert heed("prune", gated, "--out", tmp_path / "small", *arguments) == code
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "small").exists()


def test_without_gates_the_numbers_of_heads_are_required(
    gated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = prune(gated, tmp_path / "small").run
    assert heed("prune", small, "--out", tmp_path / "other") == 2
    assert "the run has no gates that select the heads to remove" in capsys.readouterr().err
    assert heed("prune", gated, "--out", small) == 2
    assert "which is a run already" in capsys.readouterr().err
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a.txt").write_text("dear")
    assert heed("prune", gated, "--out", tmp_path / "letters") == 2
    assert "which is not empty" in (message := capsys.readouterr().err) and "--out" in message
    assert heed("prune", tmp_path / "nowhere", "--out", tmp_path / "other") == 4
    assert "does not exist" in capsys.readouterr().err
