"""What tasks minimize: the surprise of tokens, and whatever else a model wants small."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from heedful.models import SequenceModel
from heedful.nn.linear import Readout
from heedful.nn.losses import Loss, cross_entropy, projected_cross_entropy
from heedful.training.update import Objective


def token_loss(model: SequenceModel, hidden: Tensor, target: Tensor, **judging: Any) -> tuple[Loss, Loss]:
    """hidden (tokens, dim), target (tokens,) -> the loss to minimize and the plain one; on a CPU without all the logits."""
    readout = getattr(model, "readout", None)
    if isinstance(readout, Readout) and hidden.device.type == "cpu" and not torch.compiler.is_compiling():
        return projected_cross_entropy(hidden, readout.weight, target, **judging)
    return cross_entropy(model.project(hidden), target, **judging)


def with_model_losses(objective: Objective, losses: dict[str, Loss]) -> Objective:
    """Each extra loss enters by its mean, weighed like one token's loss."""
    total, count = objective.minimize.total, objective.minimize.count
    for loss in losses.values():
        total = total + loss.total / loss.count * count
    return Objective(Loss(total, count), objective.report | losses)
