"""Time limit of a run: elapsed time over all sessions, and an estimate of the updates that are left.

    seconds left   limit - elapsed - time of the end (a validation, a save, the average of checkpoints)
    updates left   seconds left / (an update + its share of the regular validations and saves)

The time of an update is the median of recent laps, which ignores slow first updates and short disturbances. Updates left are
estimated again after every update, so errors of the estimate shrink with the time left; when no further update fits, the run
ends.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Callable

from heedful.training.config import TrainingConfig

RECENT = 9  # laps in the median
LAPS = 200  # a lap takes at least the time limit / LAPS
LAP_SECONDS = 0.5  # the length of a lap without a time limit
RELIABLE_LAPS, RELIABLE_SECONDS = 3, 5.0  # before the length of a run is announced
GUESSED_VALIDATION, GUESSED_SAVE = 0.05, 0.01  # fractions of the limit, until measured
MEASURE_AFTER = 1 / 3  # of the limit: if no validation was measured by then, validate
LARGEST_AVERAGE = 0.2  # of the limit: no time is reserved for an average of checkpoints that takes longer
OVERTIME = 1.1  # times the limit: the latest end
LONG = 3600.0  # seconds: a longer run on a CPU is announced

Clock = Callable[[], float]


class Stopwatch:
    """Seconds since the start of the command plus those of earlier sessions of the run."""

    def __init__(self, began: float | None = None, clock: Clock = time.monotonic) -> None:
        self.clock, self.earlier = clock, 0.0
        self.began = clock() if began is None else began

    def seconds(self) -> float:
        return self.earlier + self.clock() - self.began


class Pace:
    """Measures the time of updates, validations and saves."""

    def __init__(self, config: TrainingConfig, clock: Clock = time.monotonic) -> None:
        self.config, self.clock = config, clock
        self.limit = 60 * config.minutes
        self.lap_seconds = self.limit / LAPS or LAP_SECONDS
        self.laps: deque[float] = deque(maxlen=RECENT)  # seconds of an update
        self.seconds, self.updates = 0.0, 0  # of the current lap
        self.total, self.measured = 0, 0.0  # laps so far, and their seconds
        self.validation = self.save = 0.0  # seconds of the last one; 0: not measured yet

    def record_update(self, began: float, synchronize: Callable[[], None]) -> None:
        """Record an update that began at this time; `synchronize` waits until the device has finished it."""
        self.updates += 1
        if self.limit and self.seconds + self.clock() - began >= self.lap_seconds:
            synchronize()
        self.seconds += self.clock() - began
        if self.seconds >= self.lap_seconds:
            if self.total == 1:
                self.laps.clear()  # the first lap, which is slow
            self.laps.append(self.seconds / self.updates)
            self.measured += self.seconds
            self.total, self.seconds, self.updates = self.total + 1, 0.0, 0

    @property
    def steady(self) -> bool:
        """Whether the first lap, which is slow, is over."""
        return self.total > 1

    @property
    def reliable(self) -> bool:
        """Whether enough was measured to announce how long the run will take: a few updates, or some seconds of fast ones."""
        return self.total >= RELIABLE_LAPS and self.measured >= RELIABLE_SECONDS

    def update_seconds(self) -> float | None:
        """Seconds of one update with its share of validations and saves; None until measured."""
        if not self.laps:
            return None
        regular = self.validation / self.config.validate_every + self.save / self.config.save_every
        return statistics.median(self.laps) + regular

    def average_seconds(self) -> float:
        """Seconds of averaging checkpoints at the end: read them, validate the mean, write it twice."""
        if self.config.average not in ("last", "best"):
            return 0.0
        return self._validation() + 3 * self._save()

    def ending_seconds(self) -> float:
        """Seconds from the last update to the end of the run."""
        average = self.average_seconds()
        return self._validation() + self._save() + (average if average <= LARGEST_AVERAGE * self.limit or not self.limit else 0)

    def updates_left(self, elapsed: float) -> float:
        """Return how many more updates fit into the time limit."""
        if not self.limit:
            return math.inf
        each, left = self.update_seconds(), self.limit - elapsed - self.ending_seconds()
        if left <= 0:
            return 0.0
        return math.inf if each is None or not self.steady else left / max(each, 1e-9)

    def seconds_left(self, updates: int) -> float | None:
        """Return the seconds of this many updates and the end of the run; None until measured."""
        each = self.update_seconds()
        return None if each is None or not self.steady else updates * each + self.ending_seconds()

    def must_measure_validation(self, elapsed: float) -> bool:
        """Whether to validate now, because the duration is needed to end in time."""
        return 0 < MEASURE_AFTER * self.limit < elapsed and not self.validation

    def allows_average(self, elapsed: float) -> bool:
        return not self.limit or elapsed + self.average_seconds() <= OVERTIME * self.limit

    def _validation(self) -> float:
        return self.validation or GUESSED_VALIDATION * self.limit

    def _save(self) -> float:
        return self.save or GUESSED_SAVE * self.limit
