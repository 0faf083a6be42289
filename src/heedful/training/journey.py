"""How far a run has come: all that a checkpoint must hold besides tensors, as plain JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Literal

MORE = 1.1  # times the time that was used
Direction = Literal["lower", "higher"]  # which values of a metric are better; every task declares it for its metrics


def better(value: float, than: float, direction: Direction) -> bool:
    return value < than if direction == "lower" else value > than


@dataclass
class Journey:
    step: int = 0  # updates done
    last: int = 0  # the update to end with, as far as is known; 0: not thought of yet
    epoch: int = 0
    cursor: int = 0  # batches of this epoch that were used
    tokens: int = 0  # what was trained on so far, in the unit that the task counts: target tokens, or examples
    seconds: float = 0.0  # spent on updates and validations
    best: list[tuple[int, float]] = field(default_factory=list)  # (step, value), best first
    stale: int = 0  # validations since the best one
    guard: dict[str, object] = field(default_factory=dict)

    def place(self, value: float, direction: Direction, keep: int) -> bool:
        """Record a validation; returns whether it is among the best `keep` so far."""
        sign = 1 if direction == "lower" else -1
        improved = not self.best or better(value, self.best[0][1], direction)
        self.stale = 0 if improved else self.stale + 1
        ranked = sorted([*self.best, (self.step, value)], key=lambda entry: (sign * entry[1], entry[0]))[:keep]
        placed = (self.step, value) in ranked
        self.best = ranked
        return placed

    def plan(self, steps: int, seconds: float) -> None:
        """Choose the update to end with: as many as fit into the time at the pace so far, `steps` at most."""
        left = (seconds - self.seconds) * self.step / max(self.seconds, 1e-9)
        self.last = min(steps, self.step + max(int(left), 0)) if self.step else steps

    def plan_again(self, steps: int, seconds: float) -> None:
        """As `plan`, where a run is taken up again: one that had come to its end goes on only for a good deal more time."""
        if not self.last or self.step < self.last or seconds > MORE * self.seconds:
            self.plan(steps, seconds)

    def as_dict(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_dict(cls, state: dict[str, object]) -> Journey:
        known = {name: state[name] for name in cls.__dataclass_fields__ if name in state}
        journey = cls(**known)  # type: ignore[arg-type]
        journey.best = [(int(step), float(value)) for step, value in journey.best]
        return journey
