"""Timing of several systems in alternating blocks of calls, so that slowdowns of the machine affect all of them.

Every other block is in reverse order, so that no system always follows the same one. A time is the median over the blocks, a
ratio the median of the blocks' ratios. The first call is a warm-up and reported separately.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

Answer = TypeVar("Answer")
LEAST = 1.0  # minimum seconds of a block: fast systems are called more often


class Lap(NamedTuple, Generic[Answer]):
    """Timings of one system."""

    seconds: float  # of a call
    first: float  # seconds of the first call
    ratios: dict[str, list[float]]  # per block: speed-up over each other system
    answer: Answer  # of the last call

    @property
    def ratio(self) -> dict[str, float]:
        return {other: statistics.median(blocks) for other, blocks in self.ratios.items()}


def alternate(
    systems: Mapping[str, Callable[[], Answer]], *, blocks: int, least: float | None = None
) -> dict[str, Lap[Answer]]:
    """Time the systems; calls must return their answer on the host. With least = 0 a block is one call of each system."""
    started = {name: timed(call, 0.0)[0] for name, call in systems.items()}
    answers: dict[str, Answer] = {}  # of the last block alone: they may be large
    spent: list[dict[str, float]] = []
    for block in range(blocks):
        spent.append({})
        for name, call in list(systems.items())[:: -1 if block % 2 else 1]:
            spent[-1][name], answers[name] = timed(call, LEAST if least is None else least)
    return {
        name: Lap(
            statistics.median(lap[name] for lap in spent),
            started[name],
            {other: [lap[other] / lap[name] for lap in spent] for other in systems if other != name},
            answers[name],
        )
        for name in systems
    }


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95% confidence interval of the median, from the binomial distribution of ranks."""
    ordered, count = sorted(values), len(values)
    rank = max(0, math.floor((count - 1.96 * math.sqrt(count)) / 2))
    return ordered[rank], ordered[-rank - 1]


def timed(call: Callable[[], Answer], least: float) -> tuple[float, Answer]:
    """Mean seconds per call, and the last answer."""
    started = time.perf_counter()
    answer, count = call(), 1
    while time.perf_counter() - started < least:
        answer, count = call(), count + 1
    return (time.perf_counter() - started) / count, answer
