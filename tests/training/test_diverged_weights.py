"""Non-finite weights are never saved or loaded, and never replace a good checkpoint."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from workshop import heed, write_recipe

from heedful.errors import CheckpointError, DivergedError
from heedful.training import checkpoint
from heedful.training.checkpoint import load_weights, save, save_named
from heedful.training.loop import Trainer
from heedful.training.retention import newest, prune, resolve
from heedful.training.weights import all_finite


def weights(value: float) -> dict[str, dict[str, torch.Tensor]]:
    return {"model": {"weight": torch.tensor([1.0, value]), "count": torch.tensor(3)}, "optimizer": {}}


def save_from_outside(checkpoints: Path, step: int, value: float, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Save a checkpoint without the check."""
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "all_finite", lambda tensors: True)
        return save(checkpoints, step, weights(value), {})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_one_non_finite_value_is_detected(value: float, kind: torch.dtype) -> None:
    good = [torch.full((3, 4), 6e4, dtype=kind), torch.zeros(0), torch.tensor([2**40]), torch.tensor(True)]
    assert all_finite(good) and all_finite([])
    assert not all_finite([*good, torch.tensor([[0.0, value]], dtype=kind)])


def test_large_values_are_finite() -> None:
    assert all_finite([torch.full((1000,), 3e38), torch.full((3,), 1e300, dtype=torch.float64)])


@pytest.mark.parametrize("stem", ["model", "average"])
def test_diverged_weights_are_not_saved_and_the_error_names_the_last_good_checkpoint(stem: str, tmp_path: Path) -> None:
    save(tmp_path, 1, weights(1.0), {})
    tensors = {**weights(1.0), stem: {"weight": torch.tensor([math.nan])}}
    with pytest.raises(
        DivergedError, match=r"step-2 are not finite, so they were not saved; the last checkpoint, step-1, is unchanged"
    ):
        save(tmp_path, 2, tensors, {})
    with pytest.raises(DivergedError):
        save_named(tmp_path, "average", tensors, {})
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"]


def test_a_diverged_checkpoint_is_skipped_and_refused_and_good_ones_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = tmp_path / "checkpoints"
    save(checkpoints, 1, weights(1.0), {})
    for step in (2, 3):
        save_from_outside(checkpoints, step, math.nan, monkeypatch)
    folder, troubles = newest(checkpoints)
    assert folder == checkpoints / "step-1"
    assert len(troubles) == 2 and all("not finite" in trouble for trouble in troubles)
    assert resolve(tmp_path) == resolve(tmp_path, "last") == folder and "not finite" in caplog.text
    with pytest.raises(CheckpointError, match="step-3 has weights that are not finite"):
        load_weights(checkpoints / "step-3", "model")
    prune(checkpoints, keep_last=1)
    assert sorted(path.name for path in checkpoints.iterdir()) == ["step-1", "step-2", "step-3"]


def poison_after(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Trainer.update

    def update(self: Trainer, fed: Any) -> Any:
        result = real(self, fed)
        if self.train_state.step == step:
            with torch.no_grad():
                next(self.model.parameters()).view(-1)[0] = math.nan
        return result

    monkeypatch.setattr(Trainer, "update", update)


def test_a_run_with_one_nan_ends_with_its_last_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    options = ("training.steps=12", "training.validate_every=50", "training.keep_last=2", "training.max_nonfinite_steps=50")
    with monkeypatch.context() as patch:
        poison_after(5, patch)
        assert heed("train", recipe, *options, "--run", run) == 5
    assert "the last checkpoint, step-4, is unchanged" in capsys.readouterr().err
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["step-2", "step-4"]
    assert heed("train", recipe, *options, "--run", run) == 0  # it continues from there


def test_inference_with_diverged_weights_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    assert heed("train", recipe, "training.steps=2", "--run", run) == 0
    folder = run / "checkpoints" / "step-2"
    tensors, state = checkpoint.load(folder)
    tensors["model"]["encoder.0.self_attention.out.weight"][0, 0] = math.nan
    shutil.rmtree(folder)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "all_finite", lambda tensors: True)
        checkpoint.save(run / "checkpoints", 2, tensors, state)
    assert heed("translate", run, recipe) == heed("average", run, "--last", "1") == 4
