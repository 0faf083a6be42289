"""Probes: what can be read off position vectors by a linear map (Wang and Chen, 2020).

    index    vector of position i                ->  i                        mean absolute error, in positions
    order    vectors of positions i and j        ->  which comes first        share of pairs judged wrongly

Both are ridge regressions, fitted on even positions and judged on odd ones. A table without order gives an error of about a
quarter of its length and half of the pairs.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from heedful.inspection.position_shifts import ridge_predict

MOST_PAIRS = 20_000


class Probes(NamedTuple):
    index_error: float  # positions, mean absolute
    index_chance: float  # of always answering with the middle
    order_error: float  # share of pairs; chance is 0.5


def probe(table: Tensor) -> Probes:
    """table (positions, dim), in the order of the positions."""
    table = table.double().cpu()
    places = torch.arange(len(table), dtype=torch.float64)
    guessed = ridge_predict(table[0::2], places[0::2], table[1::2])
    middle = places[0::2].mean()
    return Probes(float((guessed - places[1::2]).abs().mean()), float((places[1::2] - middle).abs().mean()), order_error(table))


def order_error(table: Tensor) -> float:
    """A linear judge of pairs: f(p_i, p_j) > 0 where i comes first."""
    fitted, asked = pairs_among(torch.arange(0, len(table), 2)), pairs_among(torch.arange(1, len(table), 2))
    features = [torch.cat((table[pairs[:, 0]], table[pairs[:, 1]]), dim=1) for pairs in (fitted, asked)]
    wanted = [(pairs[:, 1] - pairs[:, 0]).sign().double() for pairs in (fitted, asked)]
    said = ridge_predict(features[0], wanted[0], features[1])
    return float((said.sign() != wanted[1]).double().mean())


def pairs_among(places: Tensor) -> Tensor:
    """(pairs, 2): all that differ, or a sample of them that is always the same."""
    pairs = torch.cartesian_prod(places, places)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    if len(pairs) <= MOST_PAIRS:
        return pairs
    draws = torch.Generator().manual_seed(0)
    return pairs[torch.randperm(len(pairs), generator=draws)[:MOST_PAIRS]]
