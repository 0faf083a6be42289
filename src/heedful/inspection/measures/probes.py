"""Linear probes of position vectors (Wang and Chen, 2020).

    index    vector of position i                ->  i                        mean absolute error, in positions
    order    vectors of positions i and j        ->  which comes first        share of misclassified pairs

Both are ridge regressions, fitted on even and evaluated on odd positions. A table without order has an index error of about a
quarter of its length and an order error of 0.5.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from heedful.inspection.measures.position_shifts import ridge_predict

MOST_PAIRS = 20_000


class Probes(NamedTuple):
    index_error: float  # positions, mean absolute
    index_chance: float  # error of always predicting the middle
    order_error: float  # share of pairs; chance is 0.5


def probe(table: Tensor) -> Probes:
    """Probe a table (positions, dim)."""
    table = table.double().cpu()
    places = torch.arange(len(table), dtype=torch.float64)
    predicted = ridge_predict(table[0::2], places[0::2], table[1::2])
    middle = places[0::2].mean()
    return Probes(
        float((predicted - places[1::2]).abs().mean()), float((places[1::2] - middle).abs().mean()), order_error(table)
    )


def order_error(table: Tensor) -> float:
    """Return the error of a linear classifier of pairs: f(p_i, p_j) > 0 if i < j."""
    train, test = pairs_among(torch.arange(0, len(table), 2)), pairs_among(torch.arange(1, len(table), 2))
    features = [torch.cat((table[pairs[:, 0]], table[pairs[:, 1]]), dim=1) for pairs in (train, test)]
    labels = [(pairs[:, 1] - pairs[:, 0]).sign().double() for pairs in (train, test)]
    predicted = ridge_predict(features[0], labels[0], features[1])
    return float((predicted.sign() != labels[1]).double().mean())


def pairs_among(places: Tensor) -> Tensor:
    """Return all pairs of different positions, or a fixed sample of them: (pairs, 2)."""
    pairs = torch.cartesian_prod(places, places)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    if len(pairs) <= MOST_PAIRS:
        return pairs
    draws = torch.Generator().manual_seed(0)
    return pairs[torch.randperm(len(pairs), generator=draws)[:MOST_PAIRS]]
