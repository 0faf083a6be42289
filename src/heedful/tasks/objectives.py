"""Training objectives: the cross-entropy of tokens, and auxiliary losses of the model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from heedful.nn.losses import Loss, cross_entropy, projected_cross_entropy
from heedful.nn.model import SequenceModel
from heedful.tasks.batches import Batch
from heedful.training.update import Objective


def token_loss(model: SequenceModel, hidden: Tensor, target: Tensor, **options: Any) -> tuple[Loss, Loss]:
    """hidden (tokens, dim), target (tokens,) -> (smoothed loss, plain loss); on a CPU the logits are never stored as a whole.

    options: of `cross_entropy`, such as padding and smoothing."""
    readout = model.embedding.readout
    if readout is not None and hidden.device.type == "cpu" and not torch.compiler.is_compiling():
        return projected_cross_entropy(hidden, readout.weight, target, **options)
    return cross_entropy(model.project(hidden), target, **options)


def with_model_losses(objective: Objective, losses: dict[str, Loss]) -> Objective:
    """Add the auxiliary losses of the model; the mean of each has the weight of one token's loss."""
    total, count = objective.minimize.total, objective.minimize.count
    for loss in losses.values():
        total = total + loss.total / loss.count * count
    return Objective(Loss(total, count), objective.report | losses)


def sequence_losses(model: SequenceModel, batch: Batch, padding: int) -> Tensor:
    """-log p of each target of a batch: (rows,)."""
    logits = (
        model.forced_logits(batch.source, batch.source_mask, batch.target_in).float().transpose(1, 2)
    )  # (rows, vocab, time)
    return functional.cross_entropy(logits, batch.target_out, ignore_index=padding, reduction="none").sum(-1)
