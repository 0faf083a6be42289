"""Systems side by side: blocks of calls in turn, so that whatever slows the machine down slows all of them down.

Every other block goes through them backwards, so that none always follows the same other one. A time is the median over the
blocks, a ratio the median of the blocks' ratios. The first call warms up and is told apart.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

Answer = TypeVar("Answer")
LEAST = 1.0  # seconds that a block lasts: quick systems are called more often in one


class Lap(NamedTuple, Generic[Answer]):
    """One system's."""

    seconds: float  # of a call
    first: float  # seconds of the first call
    ratios: dict[str, list[float]]  # in each block: how many times as fast it is as each other system
    answer: Answer  # of the last call

    @property
    def ratio(self) -> dict[str, float]:
        return {other: statistics.median(blocks) for other, blocks in self.ratios.items()}


def alternate(
    systems: Mapping[str, Callable[[], Answer]], *, blocks: int, least: float | None = None
) -> dict[str, Lap[Answer]]:
    """A call ends with its answer on the host. With least = 0 a block is one call of each: they are compared pair by pair."""
    began = {name: timed(call, 0.0)[0] for name, call in systems.items()}
    answers: dict[str, Answer] = {}  # of the last block alone: they may be large
    spent: list[dict[str, float]] = []
    for block in range(blocks):
        spent.append({})
        for name, call in list(systems.items())[:: -1 if block % 2 else 1]:
            spent[-1][name], answers[name] = timed(call, LEAST if least is None else least)
    return {
        name: Lap(
            statistics.median(lap[name] for lap in spent),
            began[name],
            {other: [lap[other] / lap[name] for lap in spent] for other in systems if other != name},
            answers[name],
        )
        for name in systems
    }


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Of the median, 95%: by how many of the values lie below it, which is binomial."""
    ordered, count = sorted(values), len(values)
    rank = max(0, math.floor((count - 1.96 * math.sqrt(count)) / 2))
    return ordered[rank], ordered[-rank - 1]


def timed(call: Callable[[], Answer], least: float) -> tuple[float, Answer]:
    """Seconds of a call on average, and its last answer."""
    began = time.perf_counter()
    answer, count = call(), 1
    while time.perf_counter() - began < least:
        answer, count = call(), count + 1
    return (time.perf_counter() - began) / count, answer
