"""Ranking metrics equal those of all orders of equal scores, and drawn candidates are distinct others."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from heedful.evaluation import ranking
from heedful.evaluation.ranking import draw_others, rank_statistics


def test_metrics_are_the_mean_over_all_orders_of_equal_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "NEAREST", (1, 2))
    rows = np.array([[2.0, 3, 2, 1, 2], [1, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 1, 2, 3, 0]])
    found = rank_statistics(rows)
    for scores, metrics in zip(rows.tolist(), found.tolist(), strict=True):
        ranks = [
            1 + sorted(order, key=lambda at: -scores[at]).index(0)  # a stable sort keeps the order of equal scores
            for order in permutations(range(5))
        ]
        expected = [sum(rank <= k for rank in ranks) / len(ranks) for k in (1, 2)]
        assert metrics == pytest.approx([*expected, sum(1 / rank for rank in ranks) / len(ranks)])
    assert len({tuple(row) for row in found.tolist()}) == 4


def test_drawn_candidates_are_distinct_and_never_the_own_one() -> None:
    own = [0, 4, 9, 9]
    drawn = draw_others(own, 10, 6, seed=3)
    assert drawn.shape == (4, 6)
    for number, row in zip(own, drawn.tolist(), strict=True):
        assert len(set(row)) == 6 and number not in row and set(row) <= set(range(10))
    assert drawn.tolist() == draw_others(own, 10, 6, seed=3).tolist() != draw_others(own, 10, 6, seed=4).tolist()
    everything = draw_others(own, 10, 99, seed=3)
    assert [sorted({*row, number}) for row, number in zip(everything.tolist(), own, strict=True)] == [list(range(10))] * 4
    assert draw_others([0], 1, 99, seed=3).shape == (1, 0)
