"""Ranking: how well the right one of several candidates is found by a score.

    recall@k    the right candidate is among the k with the highest scores
    MRR         mean of 1 / rank

Candidates with equal scores have a random order, and the metrics are their expected values: with g candidates above the right
one and e others equal to it, its rank is uniform on g + 1 … g + e + 1. So a constant score has recall@1 = 1 / candidates.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
NEAREST = (1, 10)  # k of recall@k
RANKINGS = (*(f"recall_{k}" for k in NEAREST), "mrr")  # names of the metrics, in the order of `rank_statistics`


def draw_others(own: Sequence[int], total: int, count: int, seed: int) -> NDArray[np.int64]:
    """For each example `count` distinct numbers below `total`, without its own: (examples, count), or all others if these are
    fewer."""
    count = min(count, total - 1)
    generator = np.random.Generator(np.random.Philox(key=seed))
    rows = [generator.choice(total - 1, count, replace=False, shuffle=False) for _ in own]
    drawn = np.array(rows, np.int64).reshape(len(own), count)
    return drawn + (drawn >= np.asarray(own, np.int64)[:, None])


def rank_statistics(scores: Numbers) -> Numbers:
    """scores (examples, candidates), that of the right one first -> recall@1, recall@10 and 1 / rank of each example,
    (examples, 3)."""
    right, others = scores[:, :1], scores[:, 1:]
    above, equal = (others > right).sum(1), (others == right).sum(1)  # (examples,)
    harmonic = np.concatenate(([0.0], np.cumsum(1 / np.arange(1, scores.shape[1] + 1))))  # sums of 1 / rank
    recalls = [np.clip((k - above) / (equal + 1), 0.0, 1.0) for k in NEAREST]
    return np.stack([*recalls, (harmonic[above + equal + 1] - harmonic[above]) / (equal + 1)], axis=1)


def name_rankings(values: Numbers) -> dict[str, float]:
    """The metrics by name: values (3,)."""
    return dict(zip(RANKINGS, values.tolist(), strict=True))
