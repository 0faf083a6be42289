"""A look by another score (Bahdanau et al., 2015; Luong et al., 2015), computed again from the states that looked.

    score_s = q . k_s   or   v . tanh(W q + k_s)   or   (W q)_s          A = softmax(score)          found = A values

A scope lets only places near a center be seen, and may weigh them by a bell around it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.inspection.explaining.recording import RecordedAttention
from heedful.inspection.explaining.stages import Check, check, check_softmax
from heedful.nn.scores import Additive, Dot, General, Location, Score, SourceAttention


class Scored(NamedTuple):
    """(query, …) and (key, …), in double precision."""

    formula: str
    query: Tensor  # (query, query_dim) the states that look
    key: Tensor  # (key, dim), as remembered
    value: Tensor  # (key, dim)
    scores: Tensor  # (query, key)
    center: Tensor | None  # (query,) where a scope looks
    seen: Tensor  # (query, key), -inf where it does not look
    weights: Tensor  # (query, key)
    found: Tensor  # (query, dim)
    checks: dict[str, list[Check]]


def product(score: Score, query: Tensor, key: Tensor) -> Tensor:
    return query @ key.T


def additive(score: Score, query: Tensor, key: Tensor) -> Tensor:
    assert isinstance(score, Additive), "the hidden layer is its own"
    hidden = (query @ score.query.weight.double().T)[:, None] + key[None]  # (query, key, dim)
    return hidden.tanh() @ score.value.weight.double()[0]


def by_place(score: Score, query: Tensor, key: Tensor) -> Tensor:
    assert isinstance(score, Location), "the places are its own"
    scores = query @ score.place.weight.double().T
    missing = max(0, len(key) - scores.shape[1])
    return torch.nn.functional.pad(scores[:, : len(key)], (0, missing), value=-math.inf)


WAYS: dict[type[Score], tuple[str, Callable[[Score, Tensor, Tensor], Tensor]]] = {
    Dot: ("S = q * k", product),
    General: ("S = q * W k", product),  # W k is what is remembered
    Additive: ("S = v * tanh(W q + U k + b)", additive),
    Location: ("S_s = (W q)_s", by_place),
}


@torch.no_grad()
def scored(recorded: RecordedAttention) -> Scored:
    owner = recorded.owner
    assert isinstance(owner, SourceAttention), "asked for by its own kind"
    formula, again = WAYS[type(owner.score)]
    calls = recorded.around["score"]
    query = torch.cat([inputs[0] for inputs, _ in calls], dim=1)[0].double()  # (query, query_dim): one call a token, or one
    key, value = calls[-1][0][1][0].double(), recorded.looking[-1][0][1][0].double()
    scores = again(owner.score, query, key)
    checks = {"scores": [check("S", *finite(scores, torch.cat([output for _, output in calls], dim=1)[0]))]}
    seen, bell, center = scores, torch.ones_like(scores), None
    if owner.scope is not None:
        center = torch.cat([output for _, output in recorded.around["scope"]], dim=1)[0].double()
        away = torch.arange(len(key), device=scores.device) - center[:, None]  # (query, key)
        seen = scores.masked_fill(away.abs() > owner.scope.radius, -math.inf)
        if owner.scope.bell:
            bell = torch.exp(-(away**2) / (2 * (owner.scope.radius / 2) ** 2))
    weights = seen.softmax(-1).nan_to_num(0.0) * bell
    found = weights @ value
    checks["weights"] = [check_softmax("A", weights, recorded.weights[0, 0], scores)]
    checks["found"] = [check("found", found, recorded.found[0, 0])]
    return Scored(formula, query, key, value, scores, center, seen, weights, found, checks)


def finite(ours: Tensor, models: Tensor) -> tuple[Tensor, Tensor]:
    """Without the places that neither knows."""
    there = (ours > -math.inf) | (models > -math.inf)
    return ours[there], models[there]
