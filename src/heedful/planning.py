"""What a run will take, measured on its own first batches before it is begun."""

from __future__ import annotations

import resource
import statistics
import time
from contextlib import closing
from typing import Any

import torch

from heedful.training.loop import Trainer

WARM = 2  # updates before the clock is read


def measure(trainer: Trainer, updates: int) -> dict[str, Any]:
    """Times a few updates; the model is the worse for it and should be thrown away."""
    trainer.model.train()
    seconds, count = [], 0
    with closing(trainer.task.stream(0, 0)) as stream:
        for number in range(WARM + updates):
            fed = [next(stream) for _ in range(trainer.config.accumulate)]
            began = time.perf_counter()
            trainer.update(fed)
            if number >= WARM:
                seconds.append(time.perf_counter() - began)
                count += sum(trainer.task.count(one.batch) for one in fed)
    step, config = statistics.median(seconds), trainer.config
    steps = min(config.steps, max(1, int(60 * config.minutes / step))) if config.minutes else config.steps
    facts: dict[str, Any] = trainer.task.facts()  # type: ignore[attr-defined]
    return {
        "parameters": sum(parameter.numel() for parameter in trainer.model.parameters()),
        **facts,
        "steps": steps,
        "epochs": steps * config.accumulate / facts["batches_per_epoch"],
        "peak_memory_bytes": peak_memory(),
        "seconds_per_step": step,
        f"{trainer.task.config.unit}_per_second": count / sum(seconds),
        "training_seconds": step * steps,  # validation comes on top
    }


def peak_memory() -> int:
    """Bytes: of the GPU where there is one, else of this process."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
