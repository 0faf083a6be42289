"""Means with intervals, and rank correlation."""

from __future__ import annotations

import numpy as np
import pytest

from heedful.evaluation.returns import mean_interval, rank_correlation


def test_ranks_of_a_worked_example_and_of_ties() -> None:
    assert rank_correlation([1, 2, 3, 4], [10, 20, 30, 25]) == pytest.approx(
        1 - 6 * 2 / (4 * 15)
    )  # 1 - 6 sum d^2 / n (n^2 - 1)
    assert rank_correlation([1, 2, 3], [5, 5, 9]) == pytest.approx(np.corrcoef([0, 1, 2], [0.5, 0.5, 2])[0, 1])
    assert rank_correlation([1, 2, 3], [9, 4, 1]) == -1 and rank_correlation([1, 2, 3], [4, 4, 4]) == 0


def test_the_interval_contains_the_mean_in_95_of_100_samples() -> None:
    draws = np.random.default_rng(0).normal(3.0, 2.0, (2000, 40))
    covered = [one.low <= 3.0 <= one.high for one in map(mean_interval, draws.tolist())]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.02)
    assert mean_interval([2.0]) == (2.0, 2.0, 2.0)
