"""How the learning rate moves: warm up, then fall. A schedule is a function of the step, 1 for the first update.

paper          dim^-0.5 min(s^-0.5, s w^-1.5)          Vaswani et al., 2017; times `rate`, which is then a factor
inverse_sqrt   rate min(s / w, sqrt(w / s))
cosine         rate s / w, then half a cosine down to `floor` x rate at the last step
linear         rate s / w, then straight down to `floor` x rate at the last step
constant       rate s / w, then rate
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from pydantic import NonNegativeInt, PositiveFloat, model_validator

from heedful.schema import Config, Probability, refuse_unused


class ScheduleConfig(Config):
    name: Literal["paper", "inverse_sqrt", "cosine", "linear", "constant"] = "inverse_sqrt"
    rate: PositiveFloat = 1e-3  # the peak; for "paper" a factor, 1 as published
    warmup: NonNegativeInt = 4000  # steps; 0 starts at the peak
    floor: Probability = 0.0  # where cosine and linear end, as a fraction of the peak

    @model_validator(mode="after")
    def _fits_together(self) -> ScheduleConfig:
        if self.name not in ("cosine", "linear"):
            refuse_unused(self, {"floor": f"schedule {self.name!r} has no end"})
        return self


def paper(step: int, config: ScheduleConfig, steps: int, dim: int) -> float:
    warmup = max(config.warmup, 1)
    return config.rate / math.sqrt(dim) * min(1 / math.sqrt(step), step / (warmup * math.sqrt(warmup)))


def inverse_sqrt(step: int, config: ScheduleConfig, steps: int, dim: int) -> float:
    warmup = max(config.warmup, 1)
    return config.rate * min(step / warmup, math.sqrt(warmup / step))


def cosine(step: int, config: ScheduleConfig, steps: int, dim: int) -> float:
    return config.rate * _fall(step, config, steps, lambda gone: (1 + math.cos(math.pi * gone)) / 2)


def linear(step: int, config: ScheduleConfig, steps: int, dim: int) -> float:
    return config.rate * _fall(step, config, steps, lambda gone: 1 - gone)


def constant(step: int, config: ScheduleConfig, steps: int, dim: int) -> float:
    return config.rate * min(1.0, step / max(config.warmup, 1))


def _fall(step: int, config: ScheduleConfig, steps: int, shape: Callable[[float], float]) -> float:
    if step <= config.warmup:
        return step / config.warmup
    gone = min(1.0, (step - config.warmup) / max(steps - config.warmup, 1))
    return config.floor + (1 - config.floor) * shape(gone)


SCHEDULES: dict[str, Callable[[int, ScheduleConfig, int, int], float]] = {
    "paper": paper,
    "inverse_sqrt": inverse_sqrt,
    "cosine": cosine,
    "linear": linear,
    "constant": constant,
}
