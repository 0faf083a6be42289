"""The time and memory that a run will need, measured on its first batches, and advice for a long run on a CPU."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedful.runs.config import Run
from heedful.runs.recipes import cpu_recipe
from heedful.training.loop import Trainer
from heedful.training.optimizers import optimizer_tensors

WARMUP = 2  # updates before timing starts


def measure(trainer: Trainer, updates: int) -> dict[str, Any]:
    """Time a few updates and extrapolate to the whole run; the trainer should not be used afterwards."""
    trainer.model.train()
    seconds, count = [], 0
    with closing(trainer.task.stream(0, 0)) as stream:
        for number in range(WARMUP + updates):
            fed = [next(stream) for _ in range(trainer.config.accumulate)]
            started = time.perf_counter()
            trainer.update(fed)
            if number >= WARMUP:
                seconds.append(time.perf_counter() - started)
                count += sum(trainer.task.count(item.batch) for item in fed)
    step, config = statistics.median(seconds), trainer.config
    steps = min(config.steps, max(1, int(60 * config.minutes / step))) if config.minutes else config.steps
    sizes: dict[str, Any] = trainer.task.statistics()
    return {
        "parameters": sum(parameter.numel() for parameter in trainer.model.parameters()),
        **sizes,
        "steps": steps,
        "epochs": steps * config.accumulate / sizes["batches_per_epoch"],
        "peak_memory_bytes": peak_memory(),
        "weight_bytes": count_bytes(trainer.model.parameters()),
        "optimizer_bytes": count_bytes(optimizer_tensors(trainer.optimizer, trainer.model).values()),
        "average_bytes": count_bytes(trainer.average.weights.values()) if trainer.average is not None else 0,
        "seconds_per_step": step,
        f"{trainer.task.config.unit}_per_second": count / sum(seconds),
        "training_seconds": step * steps,  # without validation
    }


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
