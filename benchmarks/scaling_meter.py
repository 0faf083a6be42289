"""Time and memory of a step, as work grows.

A step's time is the median of several. Memory is what it takes at its peak beyond the weights and the input: on a GPU as
torch's allocator counts it, on a CPU as the kernel counts the process's resident memory (less than a megabyte says little
there). With one CPU thread, time is that of the processor, which a busy machine hardly stretches.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import memory
import torch

Step = Callable[[], None]
Point = dict[str, float]
Work = Iterable[tuple[int, Callable[[], Step]]]  # how much of it, and how the step is made


class Meter:
    """Time and memory of steps on one device, and how much is too much."""

    def __init__(self, device: torch.device, limit_seconds: float, limit_bytes: float, repetitions: int) -> None:
        self.device = device
        self.precision = torch.bfloat16 if device.type == "cuda" else torch.float32
        self.limit_seconds, self.limit_bytes, self.repetitions = limit_seconds, limit_bytes, repetitions
        alone = device.type == "cpu" and torch.get_num_threads() == 1
        self.clock = time.process_time if alone else time.perf_counter

    def seconds(self, step: Step) -> float:
        self.wait()
        began = self.clock()
        step()
        self.wait()
        return self.clock() - began

    def warmed(self, step: Step) -> float:
        """Of the first call; of the second where the first takes too long, for that may have compiled kernels."""
        first = self.seconds(step)
        return first if first <= self.limit_seconds else self.seconds(step)

    def bytes(self, step: Step) -> int:
        if self.device.type == "cpu":
            before = memory.fresh()
            step()
            return memory.peak() - before
        torch.cuda.reset_peak_memory_stats(self.device)
        before = torch.cuda.memory_allocated(self.device)
        step()
        return torch.cuda.max_memory_allocated(self.device) - before

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def grow(self, work: Work) -> dict[str, Any]:
        """A point for each amount of work, until one is too much: the points, their exponents, and why there are no more."""
        return self.grow_together({"": work})[""]

    def grow_together(self, works: Mapping[str, Work]) -> dict[str, dict[str, Any]]:
        """As `grow`, for several; at each amount they take turns, so that what slows the machine for a while slows all."""
        found: dict[str, dict[str, Any]] = {name: {"points": [], "stopped": None} for name in works}
        for amounts in zip(*works.values(), strict=True):
            if all(one["stopped"] for one in found.values()):
                break
            steps: dict[str, Step] = {}
            times: dict[str, list[float]] = {}
            for name, (value, make) in zip(works, amounts, strict=True):
                if found[name]["stopped"] is None:
                    try:
                        steps[name] = make()
                        times[name] = [self.warmed(steps[name])]  # no more of them if that is already too long
                    except torch.OutOfMemoryError:
                        found[name]["stopped"] = f"no memory left at {value:,}"
            for _ in range(self.repetitions):
                for name, taken in times.items():
                    if taken[0] <= self.limit_seconds:
                        taken.append(self.seconds(steps[name]))
            for name, (value, _) in zip(works, amounts, strict=True):
                if name in times:
                    point = {"value": value, "seconds": statistics.median(times[name][1:] or times[name])}
                    point["bytes"] = self.bytes(steps[name])
                    print(
                        f"{name:<12}{value:>12,}{point['seconds'] * 1e3:>10.2f} ms {point['bytes'] / 1e6:>9.1f} MB",
                        file=sys.stderr,
                    )
                    found[name]["points"].append(point)
                    found[name]["stopped"] = self.too_much(point)
        for one in found.values():
            one["exponent"] = {quantity: exponent_of(one["points"], quantity) for quantity in ("seconds", "bytes")}
        return found

    def too_much(self, point: Point) -> str | None:
        if point["seconds"] > self.limit_seconds:
            return f"a step took more than {self.limit_seconds:g} s"
        if point["bytes"] > self.limit_bytes:
            return f"a step took more than {self.limit_bytes / 1e9:g} GB"
        return None


def exponent_of(points: list[Point], quantity: str, last: int = 3) -> float | None:
    """p of `quantity ~ value^p`: the slope through the last points by least squares, both axes logarithmic."""
    chosen = [(math.log(point["value"]), math.log(point[quantity])) for point in points[-last:] if point[quantity] > 0]
    if len(chosen) < 2:
        return None
    middle_x, middle_y = (statistics.fmean(axis) for axis in zip(*chosen, strict=True))
    rise = sum((x - middle_x) * (y - middle_y) for x, y in chosen)
    return round(rise / sum((x - middle_x) ** 2 for x, _ in chosen), 2)
