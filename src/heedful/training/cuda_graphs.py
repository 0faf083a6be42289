"""CUDA graphs of a training step, without a compiler: the kernels of the forward and backward pass are captured once per
batch shape and then replayed, so that small models are not limited by kernel launches from Python.

A shape runs eagerly when it occurs for the first time, which warms up its kernels, and is captured the second time. The
random numbers of dropout follow the seed of each replay, as in eager mode.
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
    batch: Any  # its tensors are the input of every replay
    factor: Tensor  # () factor of the loss
    report: dict[str, Loss]  # overwritten by every replay


def graph_recorder() -> Record:
    """Return a function that captures the kernels of another; all graphs share a memory pool, since one runs at a time."""
    pool = torch.cuda.graph_pool_handle()

    def record(function: Callable[[], dict[str, Loss]]) -> tuple[Replay, dict[str, Loss]]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):  # other threads prepare batches
            report = function()
        return graph.replay, report

    return record


def shape_of(batch: Any) -> Shape:
    """The shape of every tensor of a batch; None for other fields."""
    return tuple(tuple(part.shape) if isinstance(part, Tensor) else None for part in batch)


def fill(captured: Any, batch: Any) -> None:
    """Copy the tensors of one batch into those of another of the same shape."""
    for destination, source in zip(captured, batch, strict=True):
        if isinstance(destination, Tensor):
            destination.copy_(source, non_blocking=True)


def graph_accumulation(model: nn.Module, loss: Callable[[Any], Objective], device: torch.device, record: Record) -> Accumulate:
    """As `eager_accumulation`, by replaying CUDA graphs."""
    eager = eager_accumulation(loss)
    seen: set[Shape] = set()
    recordings: dict[Shape, Recording] = {}
    gradients: dict[nn.Parameter, Tensor] = {}  # graphs accumulate into these tensors, whatever became of parameter.grad

    def accumulate(batch: Any, factor: float) -> dict[str, Loss]:
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.grad is None:
                if parameter not in gradients:
                    gradients[parameter] = torch.zeros_like(parameter)
                parameter.grad = gradients[parameter].zero_()
        shape = shape_of(batch)
        if shape not in seen:
            seen.add(shape)
            return eager(batch, factor)
        if shape not in recordings:
            recordings[shape] = capture(batch.to(device))
        recording = recordings[shape]
        fill(recording.batch, batch)
        recording.factor.fill_(factor)
        recording.replay()
        return recording.report

    def capture(batch: Any) -> Recording:
        own = type(batch)(*(part.clone() if isinstance(part, Tensor) else part for part in batch))
        factor = torch.zeros((), device=device)
        replay, report = record(lambda: eager(own, factor))
        return Recording(replay, own, factor, report)

    return accumulate
