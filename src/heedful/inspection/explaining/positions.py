"""Positions by hand: the table of sines and cosines, and the rotation that shifts it (Vaswani et al., 2017).

PE[p, 2k] = sin(p w_k)     PE[p, 2k + 1] = cos(p w_k)     w_k = 10000^(-2k/d)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from heedful.inspection.explaining.stages import Explanation, Matrix, Mistake, Stage, matrix
from heedful.nn.positions import frequencies, sinusoid

COUNT = 4  # positions and dimensions that are shown
PLACES = [f"p{place}" for place in range(COUNT)]
DIMENSIONS = [str(dimension) for dimension in range(COUNT)]


def positions() -> Explanation:
    stages = [
        Stage(
            "A number as bits",
            "bit_i of p = floor(p / 2^i) mod 2",
            [Matrix("p", [f"bit {i}" for i in range(3)], [str(p) for p in range(8)], bits())],
            "Counting in bits, each digit changes half as often as the one before it. Sines and cosines do the same "
            "smoothly: each pair of dimensions is a clock that turns more slowly than the one before.",
        ),
        Stage(
            "The table",
            "PE_(p, 2k) = sin(p omega_k) , PE_(p, 2k + 1) = cos(p omega_k) , omega_k = 10000^(-2k / d)",
            [matrix(f"d = {size}", DIMENSIONS, PLACES, table(size)[:, :COUNT].T) for size in (50, 20, 4)],
            "k counts pairs of dimensions: 0 and 1 share one clock, 2 and 3 the next. The first pair is the same for every "
            "model; all others depend on its size d, so a table without its d says nothing.",
            [by_dimension(), halves()],
        ),
        Stage(
            "A shift is a rotation",
            "PE_(p + r) = M_r PE_p",
            [
                matrix("M₁, pair 1", ["sin", "cos"], ["sin", "cos"], rotation(50, 1, 1)),
                matrix("M₁ PE, d = 50", ["2", "3"], PLACES[: COUNT - 1], shifted()),
                matrix("PE one later", ["2", "3"], PLACES[1:], table(50)[1:, 2:4].T),
            ],
            "One step further is the same small rotation wherever one stands, [cos wr, sin wr; -sin wr, cos wr] in each pair. "
            "So a linear map, which is what a model has, can look a fixed distance away.",
        ),
        Stage(
            "Nearness",
            "PE_p * PE_(p + r) = sum_k cos(omega_k r)",
            [matrix("d = 128", ["dot product"], [f"r = {r}" for r in range(6)], similarity(128, 6)[None])],
            "How alike two positions are depends on their distance alone, and it falls with it, at first; farther away it "
            "ripples. At distance 0 it is d / 2.",
        ),
    ]
    opening = "Attention sees a set of words, not their order. A vector for each position is added to each word."
    return Explanation("Positions: sines, cosines and a rotation", opening, stages)


def table(size: int, places: int = COUNT) -> Tensor:
    """(places, size), in double precision."""
    return sinusoid(torch.arange(places, dtype=torch.float64), frequencies(size))


def rotation(size: int, pair: int, shift: int) -> Tensor:
    angle = float(frequencies(size)[pair]) * shift
    turned = [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]
    return torch.tensor(turned, dtype=torch.float64)


def shifted() -> Tensor:
    """The second pair of every position but the last, turned by one step: (2, places - 1)."""
    return rotation(50, 1, 1) @ table(50)[:-1, 2:4].T


def similarity(size: int, distances: int) -> Tensor:
    waves = table(size, distances)
    return waves @ waves[0]


def bits() -> list[list[int]]:
    return [[p >> i & 1 for p in range(8)] for i in range(3)]


def by_dimension() -> Mistake:
    """The exponent 2i/d with the dimension i where the pair belongs."""
    waves = 10000.0 ** (-2 * torch.arange(COUNT, dtype=torch.float64) / 50)
    angles = torch.arange(COUNT, dtype=torch.float64)[:, None] * waves  # (places, dimensions)
    even = torch.arange(COUNT) % 2 == 0
    return Mistake(
        "counting dimensions instead of pairs in the exponent",
        [matrix("d = 50", DIMENSIONS, PLACES, torch.where(even, angles.sin(), angles.cos()).T)],
        "sine and cosine of one pair then turn at different speeds, they are no point on a circle any more, and no rotation "
        "shifts them. The slowest clock also stands at 10000^-2 instead of 10000^-1.",
    )


def halves() -> Mistake:
    mixed = table(8)
    cut = torch.cat((mixed[:, 0::2], mixed[:, 1::2]), dim=-1)
    names = [str(i) for i in range(8)]
    return Mistake(
        "mixing the two layouts: all sines, then all cosines, in one program; in turns in the other",
        [matrix("in turns", names, PLACES, mixed.T), matrix("in halves", names, PLACES, cut.T)],
        "either is as good as the other, but weights that were trained with one read nonsense in the other.",
    )
