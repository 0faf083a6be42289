"""One update: the gradient of a batch, computed in one or more parts, then one optimizer step.

    gradient = d/dw  sum of all parts' losses / count of all parts' tokens

so gradient accumulation, splitting a batch that does not fit into memory, and sharing it among several processes give the
gradient of the batch itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol

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
from heedful.training.ranks import Ranks

MAX_PARTS = 64
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Weights(Protocol):
    """The weights that this process updates: a model, or its part of a sharded one."""

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def zero_grad(self, set_to_none: bool = True) -> None: ...


class Objective(NamedTuple):
    """The loss to minimize, and the losses to report."""

    minimize: Loss
    report: dict[str, Loss]


class SplitLog:
    """A file of the updates that were split because memory ran out, so that a resumed run splits them equally."""

    def __init__(self, path: Path, ranks: Ranks | None = None) -> None:
        self.path, self.ranks = path, ranks or Ranks()
        self.parts: dict[int, int] = self.ranks.from_first(lambda: read_splits(path) if path.exists() else {})

    def record(self, step: int, parts: int) -> None:
        self.parts[step] = parts
        if self.ranks.first:
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


def synchronize_always(last: bool) -> None: ...


class Gradients(NamedTuple):
    """How to compute gradients: of a part, how to split a batch, and how to count its tokens."""

    accumulate: Accumulate
    split: Callable[[Any, int], Sequence[Any]]
    count: Callable[[Any], int]
    ranks: Ranks = Ranks()
    begin_part: Callable[[bool], None] = synchronize_always  # called before each part, with whether it is the last
    lockstep: bool = False  # whether ranks exchange data within a part, so that none can compute more parts than the others


class Part(NamedTuple):
    batch: Any
    counts: bool  # False on a rank without a share: it computes the part of another rank with weight 0


def own_parts(gradients: Gradients, batch: Any, parts: int) -> list[Part]:
    """The parts of this rank's share of a batch."""
    shares, rank = gradients.split(batch, gradients.ranks.size), gradients.ranks.rank
    counts = rank < len(shares)
    return [Part(part, counts) for part in gradients.split(shares[rank if counts else 0], parts)]


def backward(
    gradients: Gradients, batches: Sequence[Any], parts: int, *, seed: int, step: int, scale: float
) -> dict[str, Loss]:
    """Accumulate the gradients of all parts of this rank's share of the batches; return its losses to report."""
    own = [part for batch in batches for part in own_parts(gradients, batch, parts)]
    count = sum(gradients.count(batch) for batch in batches)
    report: dict[str, Loss] = {}
    for number, (part, counts) in enumerate(own):
        seed_part(seed, step, number, gradients.ranks.rank)
        gradients.begin_part(number == len(own) - 1)
        for name, loss in gradients.accumulate(part, scale * counts / max(count, 1)).items():
            before = report.get(name)
            total, tokens = loss.total * counts, loss.count * counts  # copies: a CUDA graph overwrites its results
            report[name] = Loss(total, tokens) if before is None else Loss(before.total + total, before.count + tokens)
    return report


def gradient_of(
    model: Weights,
    gradients: Gradients,
    batches: Sequence[Any],
    splits: SplitLog,
    *,
    seed: int,
    step: int,
    scale: float,
) -> dict[str, Loss]:
    """Compute the gradient of the batches on all ranks, and return the losses to report.

    When memory runs out on a rank, all repeat with twice as many parts, and the split is recorded; in lockstep it is an
    error."""
    ranks, parts = gradients.ranks, 1 if gradients.lockstep else splits.parts.get(step, 1)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    while True:
        needed = parts
        try:
            report = backward(gradients, batches, parts, seed=seed, step=step, scale=scale)
        except torch.OutOfMemoryError:
            if parts >= MAX_PARTS or gradients.lockstep:  # the others wait for what this rank sends
                raise
            needed = 2 * parts
        needed, *present = ranks.maximum([needed, *(parameter.grad is not None for parameter in parameters)])
        if needed == parts:
            used = [parameter for parameter, flag in zip(parameters, present, strict=True) if flag]
            return add_up_gradients(used, report, ranks)
        parts = needed
        model.zero_grad(set_to_none=True)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        splits.record(step, parts)


def add_up_gradients(parameters: Sequence[nn.Parameter], report: dict[str, Loss], ranks: Ranks) -> dict[str, Loss]:
    """Replace the gradients by their sums over all ranks; return the sums of the reported losses."""
    if not ranks.exchanges:
        return report
    for parameter in parameters:  # unused on this rank, but not on another
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    gradients = [] if ranks.sharded else [parameter.grad for parameter in parameters if parameter.grad is not None]
    names = sorted(report)
    losses = [report[name] for name in names]
    values = torch.stack([value.detach().float() for loss in losses for value in (loss.total, loss.count)])  # (2 x losses,)
    ranks.add_up([*gradients, values])
    return {name: Loss(total, count) for name, (total, count) in zip(names, values.view(-1, 2), strict=True)}


def apply_gradients(
    model: Weights,
    optimizer: torch.optim.Optimizer,
    guard: NonFiniteGuard,
    config: TrainingConfig,
    step: int,
    ranks: Ranks | None = None,
) -> Tensor:
    """Clip the gradient and step the optimizer, unless the gradient is not finite; return its norm.

    On a GPU this does not synchronize: the optimizer's kernel skips the update itself, and the guard reads the flag later.
    Only fp16, whose scale depends on it, and optimizers without such a kernel synchronize."""
    parameters = [parameter for parameter in model.parameters() if parameter.grad is not None]
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if guard.scale != 1:
        divide_all(gradients, guard.scale)
    norm = nn.utils.get_total_norm(gradients)
    if ranks is not None and ranks.sharded:  # |g|^2 = the sum of the |g|^2 of all shards
        squared = norm.double().square()
        ranks.add_up([squared])
        norm = squared.sqrt().to(norm.dtype)
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
