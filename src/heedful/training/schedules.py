"""How the learning rate moves: warm up, then fall. A schedule is a function of the step, 1 for the first update.

paper          dim^-0.5 min(s^-0.5, s w^-1.5)          Vaswani et al., 2017; times `rate`, which is then a factor
inverse_sqrt   rate min(s / w, sqrt(w / s))
cosine         rate s / w, then half a cosine down to `floor` x rate at the last step
linear         rate s / w, then straight down to `floor` x rate at the last step
constant       rate s / w, then rate

A run with a time limit goes through the same schedule in fewer updates: `advance` moves its position by more than one step
at a time. The position never jumps, so the learning rate stays smooth when the pace of the machine changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from pydantic import model_validator

from heedful.schema import Config, PositiveNumber, Probability, ZeroOrCount, refuse_unused


class ScheduleConfig(Config):
    name: Literal["paper", "inverse_sqrt", "cosine", "linear", "constant"] = "inverse_sqrt"  # shape of the schedule
    rate: PositiveNumber = 1e-3  # peak learning rate; for "paper" a factor, 1 as published
    warmup: ZeroOrCount = 4000  # warmup steps; 0 starts at the peak
    floor: Probability = 0.0  # final learning rate of cosine and linear, as a fraction of the peak

    @model_validator(mode="after")
    def _fits_together(self) -> ScheduleConfig:
        if self.name not in ("cosine", "linear"):
            refuse_unused(self, {"floor": f"schedule {self.name!r} has no end"})
        return self


SHORTEST_WARMUP = 10  # updates
WARMUP_SHARE = 0.1  # of the planned updates: the longest warm-up of a run that its time limit makes shorter


def advance(position: float, step: int, config: ScheduleConfig, steps: int, fits: float) -> float:
    """The position in the schedule of the update after `step`, where `fits` more updates fit into the time.

    One step further if all `steps` fit. Else the warm-up takes at most a tenth of the updates that are planned, and each later
    update takes its share of the rest of the schedule, so that the last one arrives at the end."""
    left = max(1, min(int(min(fits, steps)), steps - step))  # updates, this one included
    if position < config.warmup:
        longest = (step + left) * max(WARMUP_SHARE, config.warmup / steps)
        warmup = min(float(config.warmup), max(longest, SHORTEST_WARMUP))
        return min(position + config.warmup / warmup, float(config.warmup))
    return min(position + (steps - position) / left, max(position, float(steps)))


def paper(step: float, config: ScheduleConfig, steps: int, dim: int) -> float:
    warmup = max(config.warmup, 1)
    return config.rate / math.sqrt(dim) * min(1 / math.sqrt(step), step / (warmup * math.sqrt(warmup)))


def inverse_sqrt(step: float, config: ScheduleConfig, steps: int, dim: int) -> float:
    warmup = max(config.warmup, 1)
    return config.rate * min(step / warmup, math.sqrt(warmup / step))


def cosine(step: float, config: ScheduleConfig, steps: int, dim: int) -> float:
    return config.rate * _fall(step, config, steps, lambda gone: (1 + math.cos(math.pi * gone)) / 2)


def linear(step: float, config: ScheduleConfig, steps: int, dim: int) -> float:
    return config.rate * _fall(step, config, steps, lambda gone: 1 - gone)


def constant(step: float, config: ScheduleConfig, steps: int, dim: int) -> float:
    return config.rate * min(1.0, step / max(config.warmup, 1))


def _fall(step: float, config: ScheduleConfig, steps: int, shape: Callable[[float], float]) -> float:
    if step <= config.warmup:
        return step / config.warmup
    gone = min(1.0, (step - config.warmup) / max(steps - config.warmup, 1))
    return config.floor + (1 - config.floor) * shape(gone)


SCHEDULES: dict[str, Callable[[float, ScheduleConfig, int, int], float]] = {
    "paper": paper,
    "inverse_sqrt": inverse_sqrt,
    "cosine": cosine,
    "linear": linear,
    "constant": constant,
}
