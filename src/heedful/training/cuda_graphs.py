"""CUDA graphs of a training step, without a compiler: the kernels of the forward and the backward pass are recorded once
for each shape of a batch and then replayed, so that Python no longer sets the pace of small models.

A shape is run plainly when it occurs for the first time, which warms its kernels up, and recorded the second time. The
random numbers of dropout follow the seed of each replay, as they do in a plain pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from heedful.nn.losses import Loss
from heedful.training.update import Accumulate, Objective, eager_accumulation

Shape = tuple[tuple[int, ...] | None, ...]


Replay = Callable[[], None]
Record = Callable[[Callable[[], dict[str, Loss]]], tuple[Replay, dict[str, Loss]]]


class Recording(NamedTuple):
    replay: Replay
    batch: Any  # whose tensors every replay reads
    factor: Tensor  # () what the loss is multiplied by
    report: dict[str, Loss]  # written over by every replay


def graph_recorder() -> Record:
    """Record the kernels that a function starts, without running them; all graphs share one pool of memory, since only one
    of them runs at a time."""
    pool = torch.cuda.graph_pool_handle()

    def record(function: Callable[[], dict[str, Loss]]) -> tuple[Replay, dict[str, Loss]]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):  # others may prepare batches
            report = function()
        return graph.replay, report

    return record


def shape_of(batch: Any) -> Shape:
    """Of each tensor; what is None or a number has none."""
    return tuple(tuple(part.shape) if isinstance(part, Tensor) else None for part in batch)


def fill(old: Any, new: Any) -> None:
    """Copy a batch's tensors into those of another of the same shape."""
    for before, now in zip(old, new, strict=True):
        if isinstance(before, Tensor):
            before.copy_(now, non_blocking=True)


def graph_accumulation(model: nn.Module, loss: Callable[[Any], Objective], device: torch.device, record: Record) -> Accumulate:
    """A function that adds a batch's gradients to the parameters', as `accumulate_plainly` does, by replaying."""
    plain = eager_accumulation(loss)
    seen: set[Shape] = set()
    recordings: dict[Shape, Recording] = {}

    def accumulate(batch: Any, factor: float) -> dict[str, Loss]:
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.grad is None:  # recordings add to these very tensors
                parameter.grad = torch.zeros_like(parameter)
        shape = shape_of(batch)
        if shape not in seen:
            seen.add(shape)
            return plain(batch, factor)
        if shape not in recordings:
            recordings[shape] = recorded(batch.to(device))
        recording = recordings[shape]
        fill(recording.batch, batch)
        recording.factor.fill_(factor)
        recording.replay()
        return recording.report

    def recorded(batch: Any) -> Recording:
        own = type(batch)(*(part.clone() if isinstance(part, Tensor) else part for part in batch))
        factor = torch.zeros((), device=device)
        replay, report = record(lambda: plain(own, factor))
        return Recording(replay, own, factor, report)

    return accumulate
