"""A checkpoint that verifies but lacks a part that training needs is a clear error."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from workshop import heed, write_recipe

from heedful.training import checkpoint
from heedful.training.saved_state import load_train_state

Damage = Callable[[dict[str, dict[str, torch.Tensor]], dict[str, Any]], object]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    assert heed("train", write_recipe(folder), "training.steps=2", "training.average=ema", "--run", folder / "run") == 0
    return folder


def first(tensors: dict[str, torch.Tensor], ending: str) -> str:
    return next(name for name in tensors if name.endswith(ending))


DAMAGES: dict[str, tuple[Damage, str]] = {
    "no train_state": (lambda t, s: s.pop("train_state"), "train_state is missing"),
    "an empty train_state": (lambda t, s: s.update(train_state={}), "train_state.step is missing"),
    "a train_state that is a list": (lambda t, s: s.update(train_state=[1]), "train_state.step is missing"),
    "a step that is a string": (lambda t, s: s["train_state"].update(step="two"), "train_state.step: "),
    "another step": (lambda t, s: s["train_state"].update(step=7), "train_state.step is 7"),
    "a negative cursor": (lambda t, s: s["train_state"].update(cursor=-1), "train_state.cursor is -1"),
    "metrics that are a string": (lambda t, s: s.update(metrics="good"), "metrics: "),
    "a guard with something else": (
        lambda t, s: s["train_state"]["guard"].update(other=1),
        "train_state.guard of the checkpoint is",
    ),
    "no optimizer": (lambda t, s: t.pop("optimizer"), "optimizer.safetensors is missing"),
    "no model": (lambda t, s: t.pop("model"), "model.safetensors is missing"),
    "no average": (lambda t, s: t.pop("average"), "average.safetensors is missing"),
    "a missing weight": (lambda t, s: t["model"].pop(first(t["model"], "weight")), "is missing"),
    "an unknown weight": (lambda t, s: t["model"].update(more=torch.zeros(1)), "more is not in the model"),
    "an average of another shape": (
        lambda t, s: t["average"].update({first(t["average"], "bias"): torch.zeros(3)}),
        "do not fit the model",
    ),
    "a weight of another type": (
        lambda t, s: t["model"].update({first(t["model"], "bias"): t["model"][first(t["model"], "bias")].double()}),
        "has type torch.float64",
    ),
    "a missing moment": (lambda t, s: t["optimizer"].pop(first(t["optimizer"], ":exp_avg")), "has no exp_avg"),
    "a moment of another shape": (
        lambda t, s: t["optimizer"].update({first(t["optimizer"], ":exp_avg"): torch.zeros(3)}),
        "the optimizer state of",
    ),
    "an unknown moment": (lambda t, s: t["optimizer"].update(other=torch.zeros(3)), "'other' is unknown"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_an_incomplete_state_is_refused_with_a_clear_error(
    name: str, workshop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(workshop / "run", tmp_path / "run", symlinks=True))
    folder = run / "checkpoints" / "step-2"
    tensors, state = checkpoint.load(folder)
    damage, sentence = DAMAGES[name]
    damage(tensors, state)
    shutil.rmtree(folder)
    checkpoint.save(run / "checkpoints", 2, tensors, state)
    capsys.readouterr()
    assert heed("train", run, "training.steps=3") == 4
    assert sentence in capsys.readouterr().err


def test_a_valid_state_is_restored(workshop: Path) -> None:
    train_state = load_train_state(workshop / "run" / "checkpoints" / "step-2")
    assert train_state.step == 2 and train_state.tokens > 0 and train_state.best


def test_without_moments_the_optimizer_starts_from_zero(workshop: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(workshop / "run", tmp_path / "run", symlinks=True))
    folder = run / "checkpoints" / "step-2"
    tensors, state = checkpoint.load(folder)
    shutil.rmtree(folder)
    checkpoint.save(run / "checkpoints", 2, {**tensors, "optimizer": {}}, state)
    assert heed("train", run, "training.steps=3") == 0
