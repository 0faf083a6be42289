"""Training with gates on the heads (nn/gates.py): what they cost, what is held fast, and how quickly they learn.

    loss = task + penalty x sum_i P(g_i != 0)        in nats a token

How many heads are open is told beside the loss, for each kind.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

from heedful.errors import ConfigError
from heedful.nn.gates import GatesConfig, gates, inference_gate, kind_of, open_probability
from heedful.nn.losses import Loss
from heedful.training.update import Objective


def add_penalty(objective: Callable[..., Objective], model: nn.Module, penalty: float) -> Callable[..., Objective]:
    """The objective with what the open heads of the model cost; still a function of tensors alone."""
    kinds: dict[str, list[torch.Tensor]] = {}
    for name, log_a in gates(model).items():
        kinds.setdefault(f"{kind_of(name)}_heads", []).append(log_a)

    def priced(*given: Any) -> Objective:
        found = objective(*given)
        every = {kind: torch.cat(one) for kind, one in kinds.items()}  # (heads of the kind,)
        expected = torch.stack([open_probability(log_a).sum() for log_a in every.values()]).sum()
        total = found.minimize.total + penalty * expected * found.minimize.count
        once = torch.ones_like(expected)
        is_open = {kind: Loss((inference_gate(log_a) > 0).sum().to(once), once) for kind, log_a in every.items()}
        return Objective(Loss(total, found.minimize.count), found.report | is_open)

    return priced


def freeze(model: nn.Module, patterns: tuple[str, ...]) -> None:
    """Hold the parameters fast whose names fit, but never a gate."""
    own = {id(log_a) for log_a in gates(model).values()}
    for pattern in patterns:
        named = [parameter for name, parameter in model.named_parameters() if fnmatchcase(name, pattern)]
        if not named:
            known = ", ".join(dict.fromkeys(name.split(".")[0] for name, _ in model.named_parameters()))
            raise ConfigError(f"training.gates.freeze: no parameter fits {pattern!r}; their names begin with: {known}")
        for parameter in named:
            parameter.requires_grad_(id(parameter) in own)


def prepare(task: Any, model: nn.Module, config: GatesConfig) -> None:
    """Let the task minimize the price as well; before its objective is compiled."""
    freeze(model, config.freeze)
    task.objective = add_penalty(task.objective, model, config.penalty)


def add_gate_group(optimizer: torch.optim.Optimizer, model: nn.Module, speed: float) -> None:
    """Give the gates a group of their own in the optimizer, which learns `speed` times as fast."""
    own = list(gates(model).values())
    held = {id(log_a) for log_a in own}
    for group in optimizer.param_groups:
        group["params"] = [parameter for parameter in group["params"] if id(parameter) not in held]
    optimizer.add_param_group({"params": own, "weight_decay": 0.0, "speed": speed})
