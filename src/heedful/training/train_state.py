"""The training state that a checkpoint stores besides tensors, as plain JSON."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Literal

MORE = 1.1  # a run ended by its time limit continues only if the limit is raised by more than this factor
Direction = Literal["lower", "higher"]  # which values of a metric are better; declared by the task


def is_better(value: float, than: float, direction: Direction) -> bool:
    """Whether a value of a metric is better; NaN is worse than every number."""
    if math.isnan(than):
        return not math.isnan(value)
    return value < than if direction == "lower" else value > than


@dataclass
class TrainState:
    step: int = 0  # updates done
    last: int = 0  # with a time limit, the estimated last update; 0: not estimated yet
    position: float = 0.0  # in the learning rate schedule; equals `step` without a time limit
    epoch: int = 0
    cursor: int = 0  # batches of this epoch that were consumed
    tokens: int = 0  # trained on so far, in the unit of the task: target tokens or examples
    seconds: float = 0.0  # wall time of all sessions, including preparation, validation and saving
    limit: float = 0.0  # time limit in seconds that `last` was estimated for
    validation_seconds: float = 0.0  # duration of the last validation
    save_seconds: float = 0.0  # duration of the last save
    best: list[tuple[int, float]] = field(default_factory=list)  # (step, value), best first
    stale: int = 0  # validations since the best one
    guard: dict[str, object] = field(default_factory=dict)

    def record_validation(self, value: float, direction: Direction, keep: int) -> bool:
        """Record a validation; return whether it is among the best `keep` so far."""
        sign = 1 if direction == "lower" else -1
        improved = not self.best or is_better(value, self.best[0][1], direction)
        self.stale = 0 if improved else self.stale + 1
        ranked = sorted([*self.best, (self.step, value)], key=lambda entry: (math.isnan(entry[1]), sign * entry[1], entry[0]))
        self.best = ranked[:keep]
        return (self.step, value) in self.best

    def plan(self, steps: int, limit: float, updates_left: float) -> None:
        """Set the last update, if `updates_left` more fit into the time limit."""
        self.limit = limit
        self.last = min(steps, self.step + int(min(updates_left, steps)))

    def is_over(self, steps: int, limit: float) -> bool:
        """Whether training is finished. A run ended by its time limit continues only if that is raised by more than 10%."""
        if self.step >= steps:
            return True
        return 0 < self.last <= self.step and 0 < limit <= MORE * max(self.limit, self.seconds)

    def resume(self, steps: int, limit: float) -> None:
        """Continue a run that is not over. If a time limit ended it, its schedule was at the end: move it back."""
        if 0 < self.last <= self.step:
            self.position = min(steps * self.seconds / limit, float(steps)) if limit else float(self.step)
        self.last = 0

    def as_dict(self) -> dict[str, object]:
        return asdict(self)
