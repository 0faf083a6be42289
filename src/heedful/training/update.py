"""One update: the gradient of a batch, computed in one or more parts, then one optimizer step.

    gradient = d/dw  sum of all parts' losses / count of all parts' tokens

so gradient accumulation, and splitting a batch that does not fit into memory, give the gradient of the batch itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
from pydantic import Field, ValidationError
from torch import Tensor, nn

from heedful.config.base import Config, ZeroOrCount
from heedful.errors import CheckpointError
from heedful.nn.losses import Loss
from heedful.nn.torch_private import divide_all
from heedful.storage.writing import replace_text
from heedful.training.config import TrainingConfig
from heedful.training.metrics_log import append_metrics, read_log
from heedful.training.nonfinite import NonFiniteGuard
from heedful.training.optimizers import supports_found_inf
from heedful.training.randomness import seed_part

MAX_PARTS = 64
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Objective(NamedTuple):
    """The loss to minimize, and the losses to report."""

    minimize: Loss
    report: dict[str, Loss]


class SplitLog:
    """A file of the updates that were split because memory ran out, so that a resumed run splits them equally."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.parts = read_splits(path) if path.exists() else {}

    def record(self, step: int, parts: int) -> None:
        self.parts[step] = parts
        append_metrics(self.path, {"step": step, "parts": parts})


class SplitRecord(Config):
    step: ZeroOrCount
    parts: Annotated[int, Field(ge=1, le=MAX_PARTS)]


def read_splits(path: Path) -> dict[int, int]:
    """Read {step: parts}; an incomplete last line is removed."""
    content = read_log(path)
    complete = content[: content.rfind(b"\n") + 1]
    parts = {}
    for number, line in enumerate(complete.splitlines(), start=1):
        try:
            split = SplitRecord.model_validate_json(line)
        except ValidationError as error:
            raise CheckpointError(
                f"{path} line {number} is damaged, so the run cannot be continued to the same weights",
                hint="remove the line to continue; updates are then split when memory runs out",
            ) from error
        parts[split.step] = split.parts
    if complete != content:
        replace_text(path, complete.decode())
    return parts


Accumulate = Callable[[Any, Any], dict[str, Loss]]  # (batch, factor of the loss) -> losses to report


def eager_accumulation(loss: Callable[[Any], Objective]) -> Accumulate:
    """Return a function that adds the gradients of a batch to those of the parameters."""

    def accumulate(batch: Any, factor: float | Tensor) -> dict[str, Loss]:
        objective = loss(batch)
        (objective.minimize.total * factor).backward()  # type: ignore[no-untyped-call]
        return {name: Loss(loss.total.detach(), loss.count) for name, loss in objective.report.items()}

    return accumulate


class Gradients(NamedTuple):
    """How to compute gradients: of a part, how to split a batch, and how to count its tokens."""

    accumulate: Accumulate
    split: Callable[[Any, int], Sequence[Any]]
    count: Callable[[Any], int]


def backward(
    gradients: Gradients, batches: Sequence[Any], parts: int, *, seed: int, step: int, scale: float
) -> dict[str, Loss]:
    """Accumulate the gradients of all parts of all batches; return the losses to report."""
    pieces = [piece for batch in batches for piece in gradients.split(batch, parts)]
    count = sum(gradients.count(piece) for piece in pieces)
    report: dict[str, Loss] = {}
    for number, piece in enumerate(pieces):
        seed_part(seed, step, number)
        for name, loss in gradients.accumulate(piece, scale / max(count, 1)).items():
            before = report.get(name)
            total, tokens = loss.total.clone(), loss.count.clone()  # a CUDA graph overwrites its results
            report[name] = Loss(total, tokens) if before is None else Loss(before.total + total, before.count + tokens)
    return report


def gradient_with_splitting(
    model: nn.Module,
    gradients: Gradients,
    batches: Sequence[Any],
    splits: SplitLog,
    *,
    seed: int,
    step: int,
    scale: float,
) -> dict[str, Loss]:
    """As `backward`; when memory runs out, repeat with twice as many parts and record the split."""
    parts = splits.parts.get(step, 1)
    while True:
        try:
            return backward(gradients, batches, parts, seed=seed, step=step, scale=scale)
        except torch.OutOfMemoryError:
            if parts >= MAX_PARTS:
                raise
            parts *= 2
        model.zero_grad(set_to_none=True)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        splits.record(step, parts)


def apply_gradients(
    model: nn.Module, optimizer: torch.optim.Optimizer, guard: NonFiniteGuard, config: TrainingConfig, step: int
) -> Tensor:
    """Clip the gradient and step the optimizer, unless the gradient is not finite; return its norm.

    On a GPU this does not synchronize: the optimizer's kernel skips the update itself, and the guard reads the flag later.
    Only fp16, whose scale depends on it, and optimizers without such a kernel synchronize."""
    parameters = [parameter for parameter in model.parameters() if parameter.grad is not None]
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if guard.scale != 1:
        divide_all(gradients, guard.scale)
    norm = nn.utils.get_total_norm(gradients)
    if config.clip:
        nn.utils.clip_grads_with_norm_(parameters, config.clip, norm)
    if norm.device.type == "cuda" and not guard.scales and supports_found_inf(optimizer):
        nonfinite = (~norm.isfinite()).float()
        optimizer.found_inf = nonfinite  # type: ignore[attr-defined]
        optimizer.step()
        guard.add_pending(step, nonfinite)
    elif guard.check(step, finite=bool(norm.isfinite())):
        optimizer.step()
    optimizer.zero_grad(set_to_none=config.cuda_graphs is not True)  # CUDA graphs accumulate into the same tensors
    return norm
