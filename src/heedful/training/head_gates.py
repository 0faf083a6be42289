"""Training with gates on attention heads (nn/gates.py): the penalty, frozen parameters and the learning rate of the gates.

    loss = task + penalty x sum_i P(g_i != 0)        in nats per token

The number of open heads of each kind is reported with the loss.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

import torch

from heedful.errors import ConfigError
from heedful.nn.gates import GatesConfig, gates, inference_gate, open_probability, prunable_attentions
from heedful.nn.losses import Loss
from heedful.nn.model import Model
from heedful.training.update import Objective


def add_penalty(objective: Callable[..., Objective], model: Model, penalty: float) -> Callable[..., Objective]:
    """Add the penalty of open heads to an objective; the result is still a function of tensors only."""
    kinds: dict[str, list[torch.Tensor]] = {}
    prunable = prunable_attentions(model)
    for name, log_a in gates(model).items():
        kinds.setdefault(f"{prunable[name].kind.name}_heads", []).append(log_a)

    def penalized(*inputs: Any) -> Objective:
        unpenalized = objective(*inputs)
        by_kind = {kind: torch.cat(logits) for kind, logits in kinds.items()}  # (heads of the kind,)
        expected = torch.stack([open_probability(log_a).sum() for log_a in by_kind.values()]).sum()
        total = unpenalized.minimize.total + penalty * expected * unpenalized.minimize.count
        one = torch.ones_like(expected)
        open_heads = {kind: Loss((inference_gate(log_a) > 0).sum().to(one), one) for kind, log_a in by_kind.items()}
        return Objective(Loss(total, unpenalized.minimize.count), unpenalized.report | open_heads)

    return penalized


def freeze(model: Model, patterns: tuple[str, ...]) -> None:
    """Freeze the parameters whose names match a pattern, except gates."""
    gate_ids = {id(log_a) for log_a in gates(model).values()}
    for pattern in patterns:
        matching = [parameter for name, parameter in model.named_parameters() if fnmatchcase(name, pattern)]
        if not matching:
            prefixes = ", ".join(dict.fromkeys(name.split(".")[0] for name, _ in model.named_parameters()))
            raise ConfigError(f"training.gates.freeze: no parameter matches {pattern!r}; names begin with: {prefixes}")
        for parameter in matching:
            parameter.requires_grad_(id(parameter) in gate_ids)


def prepare(task: Any, model: Model, config: GatesConfig) -> None:
    """Add the penalty to the objective of the task; call it before the objective is compiled."""
    freeze(model, config.freeze)
    task.objective = add_penalty(task.objective, model, config.penalty)


def add_gate_group(optimizer: torch.optim.Optimizer, model: Model, speed: float) -> None:
    """Move the gates to a parameter group of their own, whose learning rate is `speed` times that of the others."""
    own = list(gates(model).values())
    gate_ids = {id(log_a) for log_a in own}
    for group in optimizer.param_groups:
        group["params"] = [parameter for parameter in group["params"] if id(parameter) not in gate_ids]
    optimizer.add_param_group({"params": own, "weight_decay": 0.0, "speed": speed})
