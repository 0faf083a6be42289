"""Position shifts: is there one linear map that shifts every position by k?

    sinusoidal   PE(p + k) = M_k PE(p), M_k block-diagonal, block of pair i = [[cos w_i k, sin w_i k], [-sin w_i k, cos w_i k]]

The map is estimated from the vectors by least squares, for all dimensions together or for each pair separately. A learned table
need not have such a map; the error of the best map on held-out positions measures how close it comes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

RIDGE = 1e-5  # relative to the mean squared norm of a feature


def shift_map(before: Tensor, after: Tensor) -> Tensor:
    """before, after (count, dim): vectors of positions p and p + k -> M (dim, dim) with after ≈ before M^T."""
    solution: Tensor = torch.linalg.lstsq(before.double(), after.double(), driver="gelsd").solution
    return solution.T


def pair_maps(before: Tensor, after: Tensor) -> Tensor:
    """As `shift_map` for each pair of dimensions separately: (pairs, 2, 2)."""
    before, after = (x.double().view(len(x), -1, 2).transpose(0, 1) for x in (before, after))  # (pairs, count, 2)
    solution: Tensor = torch.linalg.lstsq(before, after).solution
    return solution.transpose(-2, -1)


def rotations(waves: Tensor, shift: int) -> Tensor:
    """Closed form for sinusoids: waves (pairs,) -> (pairs, 2, 2)."""
    cos, sin = (waves.double() * shift).cos(), (waves.double() * shift).sin()
    return torch.stack((torch.stack((cos, sin), -1), torch.stack((-sin, cos), -1)), -2)


class PairRotation(NamedTuple):
    """The rotation of a pair of dimensions by a shift of k positions."""

    degrees: float  # of the nearest rotation, from -180 to 180
    missed: float  # share of the pair's variance that it does not explain


def recover_rotations(table: Tensor, shift: int) -> list[PairRotation]:
    """table (positions, dim) -> the rotation of every pair of dimensions, estimated from the vectors.

    The rotation nearest to a map M = [[a, b], [c, d]] has the angle atan2(b - c, a + d)."""
    before, after = table[:-shift].double(), table[shift:].double()
    maps = pair_maps(before, after)  # (pairs, 2, 2)
    angles = torch.atan2(maps[:, 0, 1] - maps[:, 1, 0], maps[:, 0, 0] + maps[:, 1, 1])
    before, after = (x.view(len(x), -1, 2) for x in (before, after))  # (count, pairs, 2)
    missed = (torch.einsum("kij,nkj->nki", rotations(angles, 1), before) - after).square().sum((0, 2))
    spread = (after - after.mean(0)).square().sum((0, 2)).clamp(min=1e-12)
    # rounded, because the last bits of a sum depend on where its tensors lie in memory
    degrees, shares = (values.round(decimals=9).tolist() for values in (angles.rad2deg(), missed / spread))
    return [PairRotation(*pair) for pair in zip(degrees, shares, strict=True)]


def shift_error(table: Tensor, shift: int) -> float:
    """table (positions, dim) -> the share of the variance that the map, fitted on every second position, does not explain on
    the others. 0: one map shifts every position; about 1 or more: no map does."""
    before, after = table[:-shift].double(), table[shift:].double()
    missed = ridge_predict(before[0::2], after[0::2], before[1::2]) - after[1::2]
    return round(float(missed.square().sum() / (after[1::2] - after.mean(0)).square().sum()), 9)


def ridge_predict(features: Tensor, targets: Tensor, queries: Tensor) -> Tensor:
    """Ridge regression with an unpenalized bias: (count, dim), (count, …), (others, dim) -> predictions (others, …)."""
    inputs = append_ones(features)
    penalty = RIDGE * features.square().sum() / features.shape[1] * torch.eye(inputs.shape[1]).to(inputs)
    penalty[-1, -1] = 0.0
    weights: Tensor = torch.linalg.solve(inputs.T @ inputs + penalty, inputs.T @ targets)
    return append_ones(queries) @ weights


def append_ones(x: Tensor) -> Tensor:
    """Append a column of ones."""
    return torch.cat((x, x.new_ones(len(x), 1)), dim=1)
