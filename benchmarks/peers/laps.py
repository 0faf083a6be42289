"""Systems side by side: blocks of calls in turn, so that whatever slows the machine down slows all of them down.

A time is the median over the blocks, a ratio the median of the blocks' ratios. The first call warms up and is told apart.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, TypeVar

Answer = TypeVar("Answer")
LEAST = 1.0  # seconds that a block lasts: quick systems are called more often in one


class Lap(NamedTuple, Generic[Answer]):
    """One system's."""

    seconds: float  # of a call
    first: float  # seconds of the first call
    ratio: dict[str, float]  # how many times as fast it is as each other system
    answer: Answer  # of the last call


def alternate(systems: Mapping[str, Callable[[], Answer]], *, blocks: int) -> dict[str, Lap[Answer]]:
    """A call ends with its answer on the host."""
    began = {name: timed(call, 0.0) for name, call in systems.items()}
    laps = [{name: timed(call, LEAST) for name, call in systems.items()} for _ in range(blocks)]
    spent = [{name: seconds for name, (seconds, _) in lap.items()} for lap in laps]
    return {
        name: Lap(
            statistics.median(lap[name] for lap in spent),
            began[name][0],
            {other: statistics.median(lap[other] / lap[name] for lap in spent) for other in systems if other != name},
            laps[-1][name][1],
        )
        for name in systems
    }


def timed(call: Callable[[], Answer], least: float) -> tuple[float, Answer]:
    """Seconds of a call on average, and its last answer."""
    began = time.perf_counter()
    answer, count = call(), 1
    while time.perf_counter() - began < least:
        answer, count = call(), count + 1
    return (time.perf_counter() - began) / count, answer
