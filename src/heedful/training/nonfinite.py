"""The guard against numbers that are none: a non-finite update is skipped and counted, too many of them end the run.

With fp16 the loss is scaled so that small gradients survive; the scale halves when it overflows and doubles after a
while without. An overflow that a smaller scale can mend is no bad update.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

import torch
from pydantic import Field, ValidationError
from torch import Tensor

from heedful.errors import CheckpointError, DivergedError
from heedful.schema import Config, ZeroOrCount

WINDOW = 100  # updates
GROWTH = 2000  # good updates after which the scale doubles


@dataclass
class NonFiniteGuard:
    max_nonfinite_steps: int
    scale: float = 1.0  # of the loss; 1 unless fp16
    scales: bool = False
    good: int = 0  # updates since the scale last moved
    bad: list[int] = field(default_factory=list)  # the steps that were skipped, within the window
    pending: list[tuple[int, Tensor]] = field(default_factory=list)  # (step, 1 if it was skipped), still on the GPU

    def add_pending(self, step: int, bad: Tensor) -> None:
        """An update whose outcome is not known yet."""
        self.pending.append((step, bad))

    def read_pending(self) -> None:
        """Read all outcomes at once, and judge them."""
        if self.pending:
            steps, flags = zip(*self.pending, strict=True)
            self.pending = []
            for step, bad in zip(steps, torch.stack(flags).tolist(), strict=True):
                self.check(step, finite=bad == 0)

    def check(self, step: int, *, finite: bool) -> bool:
        """Whether to apply this update; raises DivergedError when too many were not finite."""
        if finite:
            self.good += 1
            if self.scales and self.good % GROWTH == 0:
                self.scale *= 2
            return True
        self.good = 0
        if self.scales and self.scale > 1:
            self.scale /= 2
            return False
        self.bad = [*(earlier for earlier in self.bad if earlier > step - WINDOW), step]
        if len(self.bad) > self.max_nonfinite_steps:
            raise DivergedError(
                f"training diverged: {len(self.bad)} of the last {WINDOW} updates up to step {step} had a loss or "
                "gradient that is not finite",
                hint="lower training.schedule.learning_rate, raise its warmup, or use precision bf16 or fp32; the last good "
                "checkpoint is intact",
            )
        return False

    def as_dict(self) -> dict[str, object]:
        return {"scale": self.scale, "good": self.good, "bad": self.bad}

    def restore(self, noted: Mapping[str, object]) -> None:
        """Continue with what `as_dict` gave; a pruned run has nothing."""
        if not noted:
            return
        try:
            known = GuardState.model_validate(dict(noted))
        except ValidationError as error:
            raise CheckpointError(f"training cannot continue: the checkpoint holds {dict(noted)} of its guard") from error
        self.scale, self.good, self.bad = known.scale, known.good, known.bad


class GuardState(Config):
    """What a checkpoint holds of a guard."""

    scale: Annotated[float, Field(gt=0.0, le=2.0**127)]
    good: ZeroOrCount
    bad: list[ZeroOrCount]
