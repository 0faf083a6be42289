"""Learning rate schedules: warm-up, then decay. A schedule is a function of the step s, 1 for the first update; w is `warmup`.

noam           factor dim^-0.5 min(s^-0.5, s w^-1.5)                    Vaswani et al., 2017
inverse_sqrt   learning_rate min(s / w, sqrt(w / s))
cosine         learning_rate s / w, then half a cosine down to `floor` x learning_rate at the last step
linear         learning_rate s / w, then a straight line down to `floor` x learning_rate at the last step
constant       learning_rate s / w, then learning_rate

A run with a time limit follows the same schedule in fewer updates: `advance` moves its position by more than one step
per update. The position never jumps, so the learning rate stays smooth when the speed of the machine changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from pydantic import model_validator

from heedful.config.base import Config, PositiveNumber, Probability, ZeroOrCount, refuse_unused


class ScheduleConfig(Config):
    name: Literal["noam", "inverse_sqrt", "cosine", "linear", "constant"] = "inverse_sqrt"
    """Learning rate schedule."""
    learning_rate: PositiveNumber = 1e-3
    """Peak learning rate."""
    factor: PositiveNumber = 1.0
    """Factor of the noam schedule, which is used instead of a peak learning rate."""
    warmup: ZeroOrCount = 4000
    """Warm-up steps; 0: start at the peak."""
    floor: Probability = 0.0
    """Final learning rate of cosine and linear, as a fraction of the peak."""

    @model_validator(mode="after")
    def _fits_together(self) -> ScheduleConfig:
        unused_options = {}
        if self.name not in ("cosine", "linear"):
            unused_options["floor"] = f"schedule {self.name!r} does not decay to a final learning rate"
        if self.name == "noam":
            unused_options["learning_rate"] = "schedule 'noam' is defined by model.dim, warmup and factor"
        else:
            unused_options["factor"] = f"schedule {self.name!r} is defined by learning_rate"
        refuse_unused(self, unused_options)
        return self


SHORTEST_WARMUP = 10  # updates
WARMUP_SHARE = 0.1  # of the planned updates: the longest warm-up of a run that a time limit shortens


def advance(position: float, step: int, config: ScheduleConfig, steps: int, updates_left: float) -> float:
    """Return the position in the schedule of the update after `step`, if `updates_left` more fit into the time limit.

    It moves by one step if all `steps` fit. Otherwise the warm-up takes at most a tenth of the planned updates, and each later
    update an equal share of the rest of the schedule, so that the last one reaches its end."""
    left = max(1, min(int(min(updates_left, steps)), steps - step))  # updates, this one included
    if position < config.warmup:
        longest = (step + left) * max(WARMUP_SHARE, config.warmup / steps)
        warmup = min(float(config.warmup), max(longest, SHORTEST_WARMUP))
        return min(position + config.warmup / warmup, float(config.warmup))
    return min(position + (steps - position) / left, max(position, float(steps)))


def noam(step: float, config: ScheduleConfig, steps: int, dim: int) -> float:
    warmup = max(config.warmup, 1)
    return config.factor / math.sqrt(dim) * min(1 / math.sqrt(step), step / (warmup * math.sqrt(warmup)))


def inverse_sqrt(step: float, config: ScheduleConfig, steps: int, dim: int) -> float:
    warmup = max(config.warmup, 1)
    return config.learning_rate * min(step / warmup, math.sqrt(warmup / step))


def cosine(step: float, config: ScheduleConfig, steps: int, dim: int) -> float:
    return config.learning_rate * _decay(step, config, steps, lambda progress: (1 + math.cos(math.pi * progress)) / 2)


def linear(step: float, config: ScheduleConfig, steps: int, dim: int) -> float:
    return config.learning_rate * _decay(step, config, steps, lambda progress: 1 - progress)


def constant(step: float, config: ScheduleConfig, steps: int, dim: int) -> float:
    return config.learning_rate * min(1.0, step / max(config.warmup, 1))


def _decay(step: float, config: ScheduleConfig, steps: int, shape: Callable[[float], float]) -> float:
    if step <= config.warmup:
        return step / config.warmup
    progress = min(1.0, (step - config.warmup) / max(steps - config.warmup, 1))
    return config.floor + (1 - config.floor) * shape(progress)


SCHEDULES: dict[str, Callable[[float, ScheduleConfig, int, int], float]] = {
    "noam": noam,
    "inverse_sqrt": inverse_sqrt,
    "cosine": cosine,
    "linear": linear,
    "constant": constant,
}
