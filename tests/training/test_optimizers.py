"""Every optimizer: its first step by formula, its state in a checkpoint, and options without effect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.testing import assert_close
from workshop import heed, write_recipe

from heedful.config.bounds import MIN_EPSILON
from heedful.training.optimizers import (
    OPTIMIZERS,
    OptimizerConfig,
    make_optimizer,
    optimizer_tensors,
    restore_optimizer,
    supports_found_inf,
)

RATE = 0.1
OPTIONS: dict[str, dict[str, Any]] = {"sgd": {"momentum": 0.9, "nesterov": True}, "rmsprop": {"momentum": 0.5}}


def config_of(name: str, **options: Any) -> OptimizerConfig:
    return OptimizerConfig.model_validate({"name": name, **OPTIONS.get(name, {}), **options})


def start(config: OptimizerConfig) -> tuple[nn.Linear, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    return model, make_optimizer(config, model)


def step(model: nn.Linear, optimizer: torch.optim.Optimizer, number: int) -> None:
    for group in optimizer.param_groups:
        group["lr"] = RATE
    draw = torch.Generator().manual_seed(number)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=draw)
    optimizer.step()


def first_step(name: str, slope: Tensor) -> Tensor:
    """The first step by the formulas of the papers, where all means start at 0."""
    if name in ("adam", "adamw"):  # both means are bias-corrected: g / |g|
        return RATE * slope / (slope.abs() + 1e-9)
    if name == "sgd":  # Nesterov: the gradient plus the new momentum
        return RATE * (slope + 0.9 * slope)
    square = 0.05 * slope**2
    if name == "adadelta":
        return RATE * slope * (1e-6 / (square + 1e-6)) ** 0.5
    return RATE * slope / (square.sqrt() + 1e-8)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_first_step_follows_the_formula(name: str) -> None:
    model, optimizer = start(config_of(name))
    before = model.weight.detach().clone()
    step(model, optimizer, 1)
    assert model.weight.grad is not None
    assert_close(before - model.weight.detach(), first_step(name, model.weight.grad), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_restored_optimizer_continues_identically(name: str) -> None:
    model, optimizer = start(config_of(name))
    other, resumed = start(config_of(name))
    for number in range(3):
        step(model, optimizer, number)
    other.load_state_dict(model.state_dict())
    restore_optimizer(resumed, other, optimizer_tensors(optimizer, model))
    for number in range(3, 6):
        step(model, optimizer, number)
        step(other, resumed, number)
    assert torch.equal(model.weight, other.weight) and torch.equal(model.bias, other.bias)


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_matrices_decay_and_vectors_do_not(name: str) -> None:
    model, optimizer = start(OptimizerConfig.model_validate({"name": name, "decay": 0.5}))
    weight, bias = model.weight.detach().clone(), model.bias.detach().clone()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for group in optimizer.param_groups:
        group["lr"] = RATE
    optimizer.step()
    assert_close(model.weight.detach(), weight * (1 - RATE * 0.5))
    assert torch.equal(model.bias, bias)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "adam", "decay": 0.1}, "decay"),
        ({"name": "sgd", "betas": (0.9, 0.99)}, "betas"),
        ({"name": "sgd", "nesterov": True}, "nesterov"),
        ({"name": "adadelta", "momentum": 0.9}, "momentum"),
        ({"momentum": 0.9}, "momentum"),
    ],
)
def test_options_without_effect_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        OptimizerConfig.model_validate(given)


@pytest.mark.parametrize("name", ["adam", "adamw", "adadelta", "rmsprop"])
def test_the_smallest_epsilon_keeps_updates_finite(name: str) -> None:
    """A gradient whose square is 0 in float32, and one that is 0 itself."""
    model = nn.Linear(3, 1, bias=False)
    optimizer = make_optimizer(OptimizerConfig.model_validate({"name": name, "epsilon": MIN_EPSILON}), model)
    for _ in range(3):
        model.weight.grad = torch.tensor([[0.0, 1e-30, 1.0]])
        optimizer.step()
    assert model.weight.isfinite().all()
    with pytest.raises(ValidationError, match="greater than or equal to"):
        OptimizerConfig.model_validate({"name": name, "epsilon": 1e-300})


def test_default_epsilons_are_the_published_ones() -> None:
    assert [config_of(name).epsilon for name in ("adam", "adadelta", "rmsprop")] == [1e-9, 1e-6, 1e-8]
    assert config_of("adadelta", epsilon=1e-4).epsilon == 1e-4


def test_only_fused_optimizers_skip_non_finite_updates() -> None:
    assert {name for name in OPTIMIZERS if supports_found_inf(start(config_of(name))[1])} == {"adam", "adamw", "sgd"}


@pytest.mark.parametrize("name", ["sgd", "adadelta", "rmsprop"])
def test_a_run_resumes_with_every_optimizer(tmp_path: Path, name: str) -> None:
    options: list[str | Path] = [write_recipe(tmp_path), f"training.optimizer.name={name}", "training.save_every=2"]
    assert heed("train", *options, "training.steps=4", "--run", tmp_path / "whole") == 0
    assert heed("train", *options, "training.steps=2", "--run", tmp_path / "run") == 0
    assert heed("train", *options, "training.steps=4", "--run", tmp_path / "run") == 0
    files = [tmp_path / run / "checkpoints" / "step-4" / "model.safetensors" for run in ("whole", "run")]
    assert files[0].read_bytes() == files[1].read_bytes()
