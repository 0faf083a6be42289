"""The time and memory that a run will need, measured on its first batches, and advice for a long run on a CPU."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedful.runs.config import Run
from heedful.runs.recipes import cpu_recipe
from heedful.training.loop import StreamedBatch, Trainer
from heedful.training.optimizers import optimizer_tensors

WARMUP = 2  # updates before timing starts; on a GPU, of every batch: its shape runs eagerly first, and is captured next

MAX_ROWS = 1 << 20  # of a batch: more than any has

Fed = Sequence[StreamedBatch]  # the batches of an update


def measure(trainer: Trainer, updates: int) -> dict[str, Any]:
    """Time a few updates and extrapolate to the whole run; the trainer should not be used afterwards."""
    weights = count_bytes(trainer.model.parameters())
    base = 0 if torch.cuda.is_available() else max(0, peak_memory() - weights)
    trainer.model.train()
    with closing(trainer.task.stream(0, 0)) as stream:
        fed = [[next(stream) for _ in range(trainer.config.accumulate)] for _ in range(updates)]
    whole, halves = time_updates(trainer, fed), time_updates(trainer, [halve(trainer, one) for one in fed])
    step, config = statistics.median(whole), trainer.config
    count = sum(trainer.task.count(item.batch) for one in fed for item in one)
    rows = [sum(len(trainer.task.split(item.batch, MAX_ROWS)) for item in one) for one in fed]
    steps = min(config.steps, max(1, int(60 * config.minutes / step))) if config.minutes else config.steps
    sizes: dict[str, Any] = trainer.task.statistics()
    return {
        "parameters": sum(parameter.numel() for parameter in trainer.model.parameters()),
        **sizes,
        "steps": steps,
        "rows_per_step": int(statistics.median(rows)),
        "epochs": steps * config.accumulate / sizes["batches_per_epoch"],
        "peak_memory_bytes": peak_memory(),
        "base_memory_bytes": base,  # before the first update, without weights
        "weight_bytes": weights,
        "optimizer_bytes": count_bytes(optimizer_tensors(trainer.optimizer, trainer.model).values()),
        "average_bytes": count_bytes(trainer.average.weights.values()) if trainer.average is not None else 0,
        "seconds_per_step": step,
        "fixed_seconds_per_step": fixed_seconds(whole, halves),
        f"{trainer.task.config.unit}_per_second": count / sum(whole),
        "training_seconds": step * steps,  # without validation
    }


def time_updates(trainer: Trainer, fed: Sequence[Fed]) -> list[float]:
    """Seconds of an update with each of these batches, after the warm-up."""
    on_gpu = next(trainer.model.parameters()).device.type == "cuda"
    for one in [*fed] * WARMUP if on_gpu else fed[:WARMUP]:
        trainer.update(one)
    seconds = []
    for one in fed:
        if on_gpu:
            torch.cuda.synchronize()
        started = time.perf_counter()
        trainer.update(one)
        if on_gpu:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    return seconds


def halve(trainer: Trainer, fed: Fed) -> Fed:
    """The first half of the rows of each batch."""
    return [item._replace(batch=trainer.task.split(item.batch, 2)[0]) for item in fed]


def fixed_seconds(whole: Sequence[float], halves: Sequence[float]) -> float:
    """The part of an update that does not depend on the size of its batch, such as the optimizer and kernel launches.

    With whole = fixed + variable and half = fixed + variable / 2, fixed = 2 half - whole."""
    step = statistics.median(whole)
    return min(max(0.0, 2 * statistics.median(halves) - step), step)


def count_bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def advise(config: Run, device: torch.device, recipe: Path | None) -> str:
    """What to do if the run takes long; empty on a GPU, or if its time is limited."""
    if device.type != "cpu" or config.training.minutes:
        return ""
    smaller = None if recipe is None else cpu_recipe(recipe)
    if smaller is not None:
        return f"recipe {smaller} is for a CPU: heed train {smaller}"
    return "use a GPU, fewer steps (training.steps) or a time limit (training.minutes=60)"


def peak_memory() -> int:
    """Peak memory in bytes: of the GPU if there is one, else of this process."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
