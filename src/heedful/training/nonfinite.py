"""Non-finite losses and gradients: the update is skipped and counted; too many of them stop the run.

With fp16 the loss is scaled so that small gradients do not underflow. The scale is halved after an overflow and doubled after
GROWTH updates without one. An overflow counts as non-finite only when the scale is already 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

import torch
from pydantic import Field, ValidationError
from torch import Tensor

from heedful.config.base import Config, ZeroOrCount
from heedful.errors import CheckpointError, DivergedError

WINDOW = 100  # updates
GROWTH = 2000  # finite updates after which the scale doubles


@dataclass
class NonFiniteGuard:
    max_nonfinite_steps: int
    scale: float = 1.0  # of the loss; 1 without fp16
    scales: bool = False
    good: int = 0  # finite updates since the last non-finite one
    bad: list[int] = field(default_factory=list)  # skipped steps within the window
    pending: list[tuple[int, Tensor]] = field(default_factory=list)  # (step, 1 if it was skipped), not copied from the GPU yet

    def add_pending(self, step: int, bad: Tensor) -> None:
        """Add an update whose flag is still on the GPU."""
        self.pending.append((step, bad))

    def read_pending(self) -> None:
        """Copy all pending flags from the GPU at once, and check them."""
        if self.pending:
            steps, flags = zip(*self.pending, strict=True)
            self.pending = []
            for step, bad in zip(steps, torch.stack(flags).tolist(), strict=True):
                self.check(step, finite=bad == 0)

    def check(self, step: int, *, finite: bool) -> bool:
        """Return whether to apply this update; DivergedError after too many non-finite ones."""
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
                f"training diverged: {len(self.bad)} of the last {WINDOW} updates up to step {step} had a non-finite loss or "
                "gradient",
                hint="lower training.schedule.learning_rate, raise its warmup, or use precision bf16 or fp32; the last good "
                "checkpoint is intact",
            )
        return False

    def recently_skipped(self, step: int) -> int:
        """The number of skipped updates in the window that ends at this step, as far as their flags were read."""
        return sum(earlier > step - WINDOW for earlier in self.bad)

    def as_dict(self) -> dict[str, object]:
        return {"scale": self.scale, "good": self.good, "bad": self.bad}

    def restore(self, saved: Mapping[str, object]) -> None:
        """Load the result of `as_dict`; it is empty in a pruned run."""
        if not saved:
            return
        try:
            state = GuardState.model_validate(dict(saved))
        except ValidationError as error:
            raise CheckpointError(f"training cannot continue: train_state.guard of the checkpoint is {dict(saved)}") from error
        self.scale, self.good, self.bad = state.scale, state.good, state.bad


class GuardState(Config):
    """The state of a guard in a checkpoint."""

    scale: Annotated[float, Field(gt=0.0, le=2.0**127)]
    good: ZeroOrCount
    bad: list[ZeroOrCount]
