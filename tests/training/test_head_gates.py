"""Training with gates: the penalty, frozen parameters, the learning rate of the gates, and resuming."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file
from tiny import tiny_config
from torch import Tensor
from torch.testing import assert_close
from workshop import heed, write_recipe

from heedful.errors import ConfigError
from heedful.models.transformer import Transformer, TransformerConfig
from heedful.nn.gates import GatesConfig, add_gates, gates, open_probability
from heedful.nn.losses import Loss
from heedful.training.config import TrainingConfig
from heedful.training.head_gates import add_gate_group, freeze, prepare
from heedful.training.optimizers import OptimizerConfig, make_optimizer
from heedful.training.update import Objective

CONSTANT = (
    "training.schedule.name=constant",
    "training.schedule.warmup=0",
    "training.schedule.learning_rate=1e-3",
    "search.max_extra=2",
)
GATED = ("training.gates.penalty=0.5", "training.gates.speed=2000", *CONSTANT)


def model_with_gates() -> Transformer:
    config = tiny_config("transformer", {})
    assert isinstance(config, TransformerConfig)
    model = Transformer(config, 11, 11)
    add_gates(model, ["encoder", "cross"])
    return model


def test_the_penalty_is_the_expected_number_of_open_gates() -> None:
    model = model_with_gates()
    for number, log_a in enumerate(gates(model).values()):
        log_a.data = torch.tensor([-3.0, number - 1.0])
    expected = torch.stack([open_probability(log_a).sum() for log_a in gates(model).values()]).sum()
    plain = Objective(Loss(torch.tensor(14.0), torch.tensor(7)), {"loss": Loss(torch.tensor(12.0), torch.tensor(7))})
    task: Any = SimpleNamespace(objective=lambda *given: plain)
    prepare(task, model, GatesConfig(penalty=0.25))
    objective = task.objective(model)
    assert_close(objective.minimize.total / objective.minimize.count, 2.0 + 0.25 * expected)
    report = {name: float(loss.total / loss.count) for name, loss in objective.report.items()}
    assert report == {"loss": pytest.approx(12 / 7), "encoder_heads": 2, "cross_heads": 2}
    objective.minimize.total.backward()
    assert all(log_a.grad is not None and (log_a.grad > 0).all() for log_a in gates(model).values())


def test_frozen_parameters_stay_and_gates_are_trained() -> None:
    model = model_with_gates()
    freeze(model, ("decoder*",))
    for name, parameter in model.named_parameters():
        assert parameter.requires_grad == (not name.startswith("decoder") or name.endswith("log_a")), name
    with pytest.raises(ConfigError, match="no parameter matches 'decodr'; names begin with: embedding, encoder, decoder"):
        freeze(model, ("decodr",))


def test_gates_have_their_own_learning_rate_and_no_parameter_is_in_two_groups() -> None:
    model = model_with_gates()
    optimizer = make_optimizer(OptimizerConfig(), model)
    add_gate_group(optimizer, model, 30.0)
    groups = [(group.get("speed", 1.0), parameter) for group in optimizer.param_groups for parameter in group["params"]]
    assert len(groups) == len(list(model.parameters())) == len({id(parameter) for _, parameter in groups})
    own = {id(log_a) for log_a in gates(model).values()}
    assert {id(parameter) for speed, parameter in groups if speed == 30.0} == own


def weights(run: Path, step: int) -> dict[str, Tensor]:
    return load_file(run / "checkpoints" / f"step-{step}" / "model.safetensors")


def test_a_run_with_gates_starts_from_another_run_and_closes_heads(tmp_path: Path) -> None:
    recipe, base, gated = write_recipe(tmp_path), tmp_path / "base", tmp_path / "gated"
    assert heed("train", recipe, *CONSTANT, "--run", base) == 0
    frozen = 'training.gates.freeze=["decoder*"]'
    options = (*GATED, frozen, 'training.gates.kinds=["encoder"]', f"training.init={base}")
    assert heed("train", recipe, *options, "--run", gated) == 0
    before, after = weights(base, 6), weights(gated, 6)
    assert {name for name in after if name not in before} == {f"encoder.{layer}.self_attention.out.log_a" for layer in (0, 1)}
    for name in before:
        assert torch.equal(before[name], after[name]) == name.startswith("decoder"), name
    records = [json.loads(line) for line in (gated / "metrics.jsonl").read_text().splitlines()]
    counts = [line["encoder_heads"] for line in records if line["kind"] == "train"]
    assert counts[0] == 4 and counts[-1] < 4 and len(counts) == 6


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    assert heed("train", recipe, *GATED, "--run", tmp_path / "whole") == 0
    for steps in (2, 6):
        assert heed("train", recipe, *GATED, f"training.steps={steps}", "--run", tmp_path / "parts") == 0
    names = ("model.safetensors", "optimizer.safetensors")
    for name in names:
        whole, parts = (tmp_path / run / "checkpoints" / "step-6" / name for run in ("whole", "parts"))
        assert whole.read_bytes() == parts.read_bytes()


def test_gates_are_refused_with_sharded_weights() -> None:
    with pytest.raises(ValidationError, match=r"gates\.penalty: given 0\.5, which cannot be combined"):
        TrainingConfig.model_validate({"distributed": "fsdp", "gates": {"penalty": 0.5}})
    assert TrainingConfig.model_validate({"distributed": "ddp", "gates": {"penalty": 0.5}}).gates.penalty == 0.5
