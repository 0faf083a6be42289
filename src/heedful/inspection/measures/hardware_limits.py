"""Measured limits of this machine: operations and bytes per second.

operations    a product of two square matrices in the given precision
bytes         in-place addition of arrays larger than any cache: two reads, one write
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

import torch

SECONDS = 0.3  # per measurement
SIDE = {"cpu": 1024, "cuda": 8192}  # of the square matrices
ARRAY = {"cpu": 2**25, "cuda": 2**28}  # elements of an array


class Limits(NamedTuple):
    operations: float  # per second
    bytes: float  # per second

    @property
    def ridge(self) -> float:
        """Operations per byte below which a kernel is memory-bound."""
        return self.operations / self.bytes


def measure(device: torch.device, dtype: torch.dtype = torch.float32) -> Limits:
    """Measure the limits of a device."""
    side, length = (sizes.get(device.type, sizes["cpu"]) for sizes in (SIDE, ARRAY))
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    x, y = (torch.zeros(length, device=device) for _ in range(2))
    product = seconds_of(lambda: torch.mm(a, b), device)
    addition = seconds_of(lambda: x.add_(y), device)
    return Limits(2 * side**3 / product, 3 * x.numel() * x.element_size() / addition)


def seconds_of(function: Callable[[], object], device: torch.device) -> float:
    """Return the median time of at least three runs after one warm-up run."""

    def once() -> float:
        start = time.perf_counter()
        function()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - start

    once()
    runs = [once() for _ in range(3)]
    while sum(runs) < SECONDS:
        runs.append(once())
    return median(runs)
