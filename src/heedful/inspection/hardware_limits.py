"""What this machine can do: how many operations and how many bytes in a second, measured.

operations    a product of two square matrices in the precision asked for
bytes         adding one array to another, too large for any cache: two are read, one is written
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

import torch

SECONDS = 0.3  # for each of the two
SIDE = {"cpu": 1024, "cuda": 8192}  # of the matrices
ARRAY = {"cpu": 2**25, "cuda": 2**28}  # numbers in an array


class Limits(NamedTuple):
    operations: float  # in a second
    bytes: float

    @property
    def ridge(self) -> float:
        """Operations a byte below which the memory is what one waits for."""
        return self.operations / self.bytes


def measure(device: torch.device, dtype: torch.dtype = torch.float32) -> Limits:
    side, length = (sizes.get(device.type, sizes["cpu"]) for sizes in (SIDE, ARRAY))
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    x, y = (torch.zeros(length, device=device) for _ in range(2))
    product = seconds_of(lambda: torch.mm(a, b), device)
    addition = seconds_of(lambda: x.add_(y), device)
    return Limits(2 * side**3 / product, 3 * x.numel() * x.element_size() / addition)


def seconds_of(function: Callable[[], object], device: torch.device) -> float:
    """The median over as many runs as fit, at least three after one to warm up."""

    def once() -> float:
        begun = time.perf_counter()
        function()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - begun

    once()
    runs = [once() for _ in range(3)]
    while sum(runs) < SECONDS:
        runs.append(once())
    return median(runs)
