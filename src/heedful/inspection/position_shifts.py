"""Shifts: is there one linear map that moves every position on by k?

    sinusoidal   PE(p + k) = M_k PE(p), M_k block-diagonal, block of pair i = [[cos w_i k, sin w_i k], [-sin w_i k, cos w_i k]]

The map is recovered from the vectors alone, by least squares: as a whole, or each pair of dimensions by itself. A learned
table need not have one; how well the best map does on positions that it was not fitted on tells how near it came.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

RIDGE = 1e-5  # in units of a feature's own sum of squares


def shift_map(here: Tensor, there: Tensor) -> Tensor:
    """here, there (count, dim), the same tokens before and after -> M (dim, dim) with there ≈ here M^T."""
    found: Tensor = torch.linalg.lstsq(here.double(), there.double(), driver="gelsd").solution
    return found.T


def pair_maps(here: Tensor, there: Tensor) -> Tensor:
    """The same for each pair of dimensions alone: (pairs, 2, 2)."""
    before, after = (x.double().view(len(x), -1, 2).transpose(0, 1) for x in (here, there))  # (pairs, count, 2)
    found: Tensor = torch.linalg.lstsq(before, after).solution
    return found.transpose(-2, -1)


def rotations(waves: Tensor, shift: int) -> Tensor:
    """The closed form: waves (pairs,) -> (pairs, 2, 2)."""
    cos, sin = (waves.double() * shift).cos(), (waves.double() * shift).sin()
    return torch.stack((torch.stack((cos, sin), -1), torch.stack((-sin, cos), -1)), -2)


class PairRotation(NamedTuple):
    """How a pair of dimensions moves when one goes on by k positions."""

    degrees: float  # of the rotation that comes nearest, from -180 to 180
    missed: float  # of the pair's variance, by that rotation


def recover_rotations(table: Tensor, shift: int) -> list[PairRotation]:
    """table (positions, dim): the rotation of every pair of dimensions, recovered from the vectors alone.

    The nearest one to a map M = [[a, b], [c, d]] has the angle atan2(b - c, a + d)."""
    here, there = table[:-shift].double(), table[shift:].double()
    maps = pair_maps(here, there)  # (pairs, 2, 2)
    angles = torch.atan2(maps[:, 0, 1] - maps[:, 1, 0], maps[:, 0, 0] + maps[:, 1, 1])
    before, after = (x.view(len(x), -1, 2) for x in (here, there))  # (count, pairs, 2)
    missed = (torch.einsum("kij,nkj->nki", rotations(angles, 1), before) - after).square().sum((0, 2))
    spread = (after - after.mean(0)).square().sum((0, 2)).clamp(min=1e-12)
    return [PairRotation(*one) for one in zip(angles.rad2deg().tolist(), (missed / spread).tolist(), strict=True)]


def shift_error(table: Tensor, shift: int) -> float:
    """table (positions, dim): fitted on every second position, the share of the variance that the map misses on the others.

    0: one map moves every position; about 1 or more: none does."""
    here, there = table[:-shift].double(), table[shift:].double()
    missed = ridge_predict(here[0::2], there[0::2], here[1::2]) - there[1::2]
    return float(missed.square().sum() / (there[1::2] - there.mean(0)).square().sum())


def ridge_predict(features: Tensor, wanted: Tensor, asked: Tensor) -> Tensor:
    """Ridge regression with a free constant: (count, dim), (count, …), (others, dim) -> (others, …)."""
    known = append_ones(features)
    held = RIDGE * features.square().sum() / features.shape[1] * torch.eye(known.shape[1]).to(known)
    held[-1, -1] = 0.0
    found: Tensor = append_ones(asked) @ torch.linalg.solve(known.T @ known + held, known.T @ wanted)
    return found


def append_ones(x: Tensor) -> Tensor:
    """With a column of ones."""
    return torch.cat((x, x.new_ones(len(x), 1)), dim=1)
