"""The arrays of a page, in one compressed block.

For each array all first bytes, then all second bytes and so on (which compresses better), then deflate and base64. Arrays are
float32 in small files; in larger files weights are stored in units of 1/10,000, so four decimals are exact and the error of a
weighted norm is at most half a unit times the norm of its vector. `studio/src/recorded.ts` reads them.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any

import torch
from torch import Tensor

EXACT = 100_000  # weights up to which all are stored as float32
LEVEL = 9


class Numbers:
    """The arrays of a page, each referenced by its index."""

    def __init__(self, weights: int) -> None:
        """weights: the total number of attention weights."""
        self.coded = weights > EXACT
        self.arrays: list[tuple[str, Tensor]] = []

    def add(self, array: Tensor, *, exact: bool = False) -> int:
        """Add weights between 0 and 1, or exact values of any size, and return the index."""
        self.arrays.append(("f32" if exact or not self.coded else "u16", array.detach().float().cpu().contiguous()))
        return len(self.arrays) - 1

    @property
    def shapes(self) -> list[list[Any]]:
        return [[coding, *array.shape] for coding, array in self.arrays]

    def pack(self) -> str:
        return base64.b64encode(zlib.compress(b"".join(byte_planes(*one) for one in self.arrays), LEVEL)).decode()


def byte_planes(coding: str, array: Tensor) -> bytes:
    """Return all first bytes of the values (little-endian), then all second bytes, …"""
    values = array.reshape(-1, 1)
    if coding == "u16":
        codes = (values.double() * 10_000).round().long()
        return torch.cat((codes & 255, codes >> 8), dim=1).to(torch.uint8).t().contiguous().numpy().tobytes()
    return values.view(torch.uint8).t().contiguous().numpy().tobytes()
