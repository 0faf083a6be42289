"""One update: gradients of the whole batch, however it is cut into parts, then one step of the optimizer.

    gradient = d/dw  sum of all parts' losses / count of all parts' tokens

so accumulation, and the splitting of a batch that did not fit into memory, give the gradient of the batch itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
from pydantic import Field, ValidationError
from torch import Tensor, nn

from heedful.errors import CheckpointError
from heedful.nn.losses import Loss
from heedful.nn.torch_private import divide_all
from heedful.schema import Config, ZeroOrCount
from heedful.storage.writing import replace_text
from heedful.training.config import TrainingConfig
from heedful.training.metrics_log import append_metrics, content_of
from heedful.training.nonfinite import NonFiniteGuard
from heedful.training.optimizers import supports_found_inf
from heedful.training.randomness import seed_part

MOST_PARTS = 64
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Objective(NamedTuple):
    """What to minimize, and what to tell people."""

    minimize: Loss
    report: dict[str, Loss]


class SplitLog:
    """Which updates had to be cut into parts for memory: a file, so that a resumed run cuts them alike."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.parts = read_splits(path) if path.exists() else {}

    def note(self, step: int, parts: int) -> None:
        self.parts[step] = parts
        append_metrics(self.path, {"step": step, "parts": parts})


class SplitRecord(Config):
    step: ZeroOrCount
    parts: Annotated[int, Field(ge=1, le=MOST_PARTS)]


def read_splits(path: Path) -> dict[int, int]:
    """{step: parts}; a last line that a killed process left torn is removed."""
    content = content_of(path)
    whole = content[: content.rfind(b"\n") + 1]
    parts = {}
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            split = SplitRecord.model_validate_json(line)
        except ValidationError as error:
            raise CheckpointError(
                f"{path} line {number} is damaged, so the run cannot be continued to the same weights",
                hint="remove the line to continue with updates that are split when memory runs out",
            ) from error
        parts[split.step] = split.parts
    if whole != content:
        replace_text(path, whole.decode())
    return parts


Accumulate = Callable[[Any, Any], dict[str, Loss]]  # a batch and what to multiply its loss by -> what to tell people


def accumulate_plainly(loss: Callable[[Any], Objective]) -> Accumulate:
    """Add the gradients of a batch's loss to those that the parameters have."""

    def accumulate(batch: Any, factor: float | Tensor) -> dict[str, Loss]:
        objective = loss(batch)
        (objective.minimize.total * factor).backward()  # type: ignore[no-untyped-call]
        return {name: Loss(loss.total.detach(), loss.count) for name, loss in objective.report.items()}

    return accumulate


class Gradients(NamedTuple):
    """How to get them: those of a part, the parts of a batch, and how its loss is counted."""

    accumulate: Accumulate
    split: Callable[[Any, int], Sequence[Any]]
    count: Callable[[Any], int]


def backward(
    gradients: Gradients, batches: Sequence[Any], parts: int, *, seed: int, step: int, scale: float
) -> dict[str, Loss]:
    """Add up the gradients of all parts of all batches; returns what is to be told."""
    pieces = [piece for batch in batches for piece in gradients.split(batch, parts)]
    count = sum(gradients.count(piece) for piece in pieces)
    told: dict[str, Loss] = {}
    for number, piece in enumerate(pieces):
        seed_part(seed, step, number)
        for name, loss in gradients.accumulate(piece, scale / max(count, 1)).items():
            before = told.get(name)
            total, tokens = loss.total.clone(), loss.count.clone()  # a captured graph writes over its results
            told[name] = Loss(total, tokens) if before is None else Loss(before.total + total, before.count + tokens)
    return told


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
    """As `backward`; when memory runs out, again with twice as many parts, which is noted."""
    parts = splits.parts.get(step, 1)
    while True:
        try:
            return backward(gradients, batches, parts, seed=seed, step=step, scale=scale)
        except torch.OutOfMemoryError:
            if parts >= MOST_PARTS:
                raise
            parts *= 2
        model.zero_grad(set_to_none=True)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        splits.note(step, parts)


def apply(
    model: nn.Module, optimizer: torch.optim.Optimizer, guard: NonFiniteGuard, config: TrainingConfig, step: int
) -> Tensor:
    """Cut the gradient and let the optimizer step, unless something is not finite; returns the gradient's norm.

    On a GPU nobody waits for the answer: the optimizer's kernel itself leaves everything as it was, and the guard is told
    later. Only fp16, whose scale depends on it, must know at once, and an optimizer without such a kernel."""
    parameters = [parameter for parameter in model.parameters() if parameter.grad is not None]
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if guard.scale != 1:
        divide_all(gradients, guard.scale)
    norm = nn.utils.get_total_norm(gradients)
    if config.clip:
        nn.utils.clip_grads_with_norm_(parameters, config.clip, norm)
    if norm.device.type == "cuda" and not guard.scales and supports_found_inf(optimizer):
        bad = (~norm.isfinite()).float()
        optimizer.found_inf = bad  # type: ignore[attr-defined]
        optimizer.step()
        guard.note(step, bad)
    elif guard.judge(step, finite=bool(norm.isfinite())):
        optimizer.step()
    optimizer.zero_grad(set_to_none=not config.cuda_graphs)  # captured gradients keep their place
    return norm
