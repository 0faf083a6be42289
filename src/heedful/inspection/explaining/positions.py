"""Sinusoidal positional encoding by hand: the table, and the rotation that shifts positions (Vaswani et al., 2017).

PE[p, 2k] = sin(p w_k)     PE[p, 2k + 1] = cos(p w_k)     w_k = 10000^(-2k/d)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from heedful.inspection.explaining.stages import Explanation, Matrix, Mistake, Stage, matrix
from heedful.nn.positions import frequencies, sinusoid

COUNT = 4  # positions and dimensions that are shown
POSITIONS = [f"p{position}" for position in range(COUNT)]
DIMENSIONS = [str(dimension) for dimension in range(COUNT)]


def positions() -> Explanation:
    stages = [
        Stage(
            "Positions as binary numbers",
            "bit_i of p = floor(p / 2^i) mod 2",
            [Matrix("p", [f"bit {i}" for i in range(3)], [str(p) for p in range(8)], bits())],
            "In binary counting, each bit changes half as often as the one before it. Sines and cosines are a continuous "
            "version: each pair of dimensions oscillates at a lower frequency than the one before.",
        ),
        Stage(
            "The positional encoding",
            "PE_(p, 2k) = sin(p omega_k) , PE_(p, 2k + 1) = cos(p omega_k) , omega_k = 10000^(-2k / d)",
            [matrix(f"d = {size}", DIMENSIONS, POSITIONS, encode_positions(size)[:, :COUNT].T) for size in (50, 20, 4)],
            "k counts pairs of dimensions: 0 and 1 share one frequency, 2 and 3 the next. The first pair is the same for "
            "every model; all others depend on the model dimension d, so a table is meaningless without its d.",
            [by_dimension(), mixed_layouts()],
        ),
        Stage(
            "A shift of position is a rotation",
            "PE_(p + r) = M_r PE_p",
            [
                matrix("M₁, pair 1", ["sin", "cos"], ["sin", "cos"], rotation(50, 1, 1)),
                matrix("M₁ PE, d = 50", ["2", "3"], POSITIONS[: COUNT - 1], rotate_pair()),
                matrix("PE, next position", ["2", "3"], POSITIONS[1:], encode_positions(50)[1:, 2:4].T),
            ],
            "Moving by r positions is the same rotation from every position, [cos ωr, sin ωr; -sin ωr, cos ωr] in each pair. "
            "So a linear projection of the queries lets a head attend to a fixed relative position.",
        ),
        Stage(
            "Similarity of positions",
            "PE_p * PE_(p + r) = sum_k cos(omega_k r)",
            [matrix("d = 128", ["dot product"], [f"r = {r}" for r in range(6)], similarity(128, 6)[None])],
            "The dot product of two positions depends only on their distance r. It is d / 2 at r = 0 and falls as r grows, but "
            "not monotonically: farther away it oscillates.",
        ),
    ]
    opening = (
        "Attention is permutation-equivariant: it ignores word order. A vector that encodes the position is therefore added to "
        "each embedding."
    )
    return Explanation("Positional encoding: sines, cosines and a rotation", opening, stages)


def encode_positions(size: int, count: int = COUNT) -> Tensor:
    """(count, size), in double precision."""
    return sinusoid(torch.arange(count, dtype=torch.float64), frequencies(size))


def rotation(size: int, pair: int, shift: int) -> Tensor:
    angle = float(frequencies(size)[pair]) * shift
    values = [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]
    return torch.tensor(values, dtype=torch.float64)


def rotate_pair() -> Tensor:
    """The second pair of every position but the last, rotated by one position: (2, positions - 1)."""
    return rotation(50, 1, 1) @ encode_positions(50)[:-1, 2:4].T


def similarity(size: int, distances: int) -> Tensor:
    encodings = encode_positions(size, distances)
    return encodings @ encodings[0]


def bits() -> list[list[int]]:
    return [[p >> i & 1 for p in range(8)] for i in range(3)]


def by_dimension() -> Mistake:
    """The exponent -2i/d with the dimension i instead of the pair k."""
    frequency = 10000.0 ** (-2 * torch.arange(COUNT, dtype=torch.float64) / 50)
    angles = torch.arange(COUNT, dtype=torch.float64)[:, None] * frequency  # (positions, dimensions)
    even = torch.arange(COUNT) % 2 == 0
    return Mistake(
        "counting dimensions instead of pairs in the exponent",
        [matrix("d = 50", DIMENSIONS, POSITIONS, torch.where(even, angles.sin(), angles.cos()).T)],
        "sine and cosine of a pair then have different frequencies, are no longer a point on a circle, and no rotation shifts "
        "them. The lowest frequency is also 10000^-2 instead of 10000^-1.",
    )


def mixed_layouts() -> Mistake:
    interleaved = encode_positions(8)
    halves = torch.cat((interleaved[:, 0::2], interleaved[:, 1::2]), dim=-1)
    names = [str(i) for i in range(8)]
    return Mistake(
        "mixing the two layouts: sines and cosines interleaved, or all sines followed by all cosines",
        [matrix("interleaved", names, POSITIONS, interleaved.T), matrix("halves", names, POSITIONS, halves.T)],
        "either layout works, but a model that was trained with one fails with the other.",
    )
