"""Time and memory of a step, as work grows.

The time of a step is the median of several. Memory is the peak beyond the weights and the input: on a GPU from torch's
allocator, on a CPU from the resident memory of the process (values below a megabyte are unreliable). With one CPU thread, time
is CPU time, which other processes hardly affect.
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
Work = Iterable[tuple[int, Callable[[], Step]]]  # the amount, and a function that builds the step


class Meter:
    """Measures time and memory of steps on one device, within limits."""

    def __init__(self, device: torch.device, limit_seconds: float, limit_bytes: float, repetitions: int) -> None:
        self.device = device
        self.precision = torch.bfloat16 if device.type == "cuda" else torch.float32
        self.limit_seconds, self.limit_bytes, self.repetitions = limit_seconds, limit_bytes, repetitions
        alone = device.type == "cpu" and torch.get_num_threads() == 1
        self.clock = time.process_time if alone else time.perf_counter

    def seconds(self, step: Step) -> float:
        self.wait()
        started = self.clock()
        step()
        self.wait()
        return self.clock() - started

    def warm_up(self, step: Step) -> float:
        """Seconds of the first call; of the second if the first is too slow, since it may have compiled kernels."""
        first = self.seconds(step)
        return first if first <= self.limit_seconds else self.seconds(step)

    def bytes(self, step: Step) -> int:
        if self.device.type == "cpu":
            before = memory.reset_peak()
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
        """Measure one point per amount of work until a limit is exceeded: points, exponents, and the reason for stopping."""
        return self.grow_together({"": work})[""]

    def grow_together(self, works: Mapping[str, Work]) -> dict[str, dict[str, Any]]:
        """As `grow`, for several systems that alternate at each amount, so that slowdowns of the machine affect all of them."""
        results: dict[str, dict[str, Any]] = {name: {"points": [], "stopped": None} for name in works}
        for amounts in zip(*works.values(), strict=True):
            if all(one["stopped"] for one in results.values()):
                break
            steps: dict[str, Step] = {}
            times: dict[str, list[float]] = {}
            for name, (value, make) in zip(works, amounts, strict=True):
                if results[name]["stopped"] is None:
                    try:
                        steps[name] = make()
                        times[name] = [self.warm_up(steps[name])]  # the only one if it exceeds the limit
                    except torch.OutOfMemoryError:
                        results[name]["stopped"] = f"out of memory at {value:,}"
            for _ in range(self.repetitions):
                for name, measured in times.items():
                    if measured[0] <= self.limit_seconds:
                        measured.append(self.seconds(steps[name]))
            for name, (value, _) in zip(works, amounts, strict=True):
                if name in times:
                    point = {"value": value, "seconds": statistics.median(times[name][1:] or times[name])}
                    point["bytes"] = self.bytes(steps[name])
                    print(
                        f"{name:<12}{value:>12,}{point['seconds'] * 1e3:>10.2f} ms {point['bytes'] / 1e6:>9.1f} MB",
                        file=sys.stderr,
                    )
                    results[name]["points"].append(point)
                    results[name]["stopped"] = self.too_much(point)
        for one in results.values():
            one["exponent"] = {quantity: exponent_of(one["points"], quantity) for quantity in ("seconds", "bytes")}
        return results

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
