"""Means with intervals, and rank correlation: how returns that are reached depend on returns that are desired."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Z = 1.96  # standard errors of a 95% interval


class MeanInterval(NamedTuple):
    """A mean and its 95% interval, mean ± 1.96 standard errors."""

    mean: float
    low: float
    high: float

    def text(self) -> str:
        return f"{self.mean:.3f} ({self.low:.3f} to {self.high:.3f})"

    def to_dict(self) -> dict[str, float]:
        return self._asdict()


def mean_interval(values: Sequence[float]) -> MeanInterval:
    mean = float(np.mean(values))
    error = Z * float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return MeanInterval(mean, mean - error, mean + error)


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's: the correlation of ranks; equal values have the mean of their ranks. 0 if all values of one are equal."""
    ranks = [ranks_of(np.asarray(values, np.float64)) for values in (first, second)]
    centered = [rank - rank.mean() for rank in ranks]
    scale = math.sqrt(float((centered[0] ** 2).sum() * (centered[1] ** 2).sum()))
    return float((centered[0] * centered[1]).sum()) / scale if scale else 0.0


def ranks_of(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rank of each value, from 0: how many are lower, and half of the others that are equal."""
    lower, equal = (values[None] < values[:, None]).sum(1), (values[None] == values[:, None]).sum(1)
    ranks: NDArray[np.float64] = lower + (equal - 1) / 2
    return ranks
