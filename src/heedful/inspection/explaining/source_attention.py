"""Attention over the source with other score functions (Bahdanau et al., 2015; Luong et al., 2015), recomputed.

    score_s = q . k_s   or   v . tanh(W q + k_s)   or   (W q)_s          A = softmax(score)          context = A values

Local attention is limited to positions near a center, and may multiply the weights by a Gaussian around it.
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


class SourceAttentionTrace(NamedTuple):
    """Intermediate results, in double precision."""

    formula: str
    query: Tensor  # (query, query_dim) decoder states
    key: Tensor  # (key, dim), after the key projection
    value: Tensor  # (key, dim)
    scores: Tensor  # (query, key)
    center: Tensor | None  # (query,) of local attention
    masked_scores: Tensor  # (query, key), -inf outside the window
    gaussian: Tensor | None  # (query, key), multiplies the weights of local attention with a predicted center
    weights: Tensor  # (query, key)
    context: Tensor  # (query, dim)
    checks: dict[str, list[Check]]


def dot_scores(score: Score, query: Tensor, key: Tensor) -> Tensor:
    return query @ key.T


def additive_scores(score: Score, query: Tensor, key: Tensor) -> Tensor:
    assert isinstance(score, Additive), "only additive scores have a hidden layer"
    hidden = (query @ score.query.weight.double().T)[:, None] + key[None]  # (query, key, dim)
    return hidden.tanh() @ score.value.weight.double()[0]


def location_scores(score: Score, query: Tensor, key: Tensor) -> Tensor:
    assert isinstance(score, Location), "only location scores have a weight for each position"
    scores = query @ score.place.weight.double().T
    missing = max(0, len(key) - scores.shape[1])
    return torch.nn.functional.pad(scores[:, : len(key)], (0, missing), value=-math.inf)


SCORE_FUNCTIONS: dict[type[Score], tuple[str, Callable[[Score, Tensor, Tensor], Tensor]]] = {
    Dot: ("S = q * k", dot_scores),
    General: ("S = q * W k", dot_scores),  # the cached keys are W k
    Additive: ("S = v * tanh(W q + U k + b)", additive_scores),
    Location: ("S_s = (W q)_s", location_scores),
}


@torch.no_grad()
def trace_source_attention(recorded: RecordedAttention) -> SourceAttentionTrace:
    owner = recorded.owner
    assert isinstance(owner, SourceAttention), "called for SourceAttention only"
    formula, score_function = SCORE_FUNCTIONS[type(owner.score)]
    calls = recorded.part_calls["score"]
    query = torch.cat([inputs[0] for inputs, _ in calls], dim=1)[0].double()  # (query, query_dim)
    key, value = calls[-1][0][1][0].double(), recorded.core_calls[-1][0][1][0].double()
    scores = score_function(owner.score, query, key)
    checks = {"scores": [check("S", *select_finite(scores, torch.cat([output for _, output in calls], dim=1)[0]))]}
    masked_scores, gaussian, center = scores, None, None
    if owner.scope is not None:
        center = torch.cat([output for _, output in recorded.part_calls["scope"]], dim=1)[0].double()
        distance = torch.arange(len(key), device=scores.device) - center[:, None]  # (query, key)
        masked_scores = scores.masked_fill(distance.abs() > owner.scope.radius, -math.inf)
        if owner.scope.gaussian:
            gaussian = torch.exp(-(distance**2) / (2 * (owner.scope.radius / 2) ** 2))
    weights = masked_scores.softmax(-1).nan_to_num(0.0)
    weights = weights if gaussian is None else weights * gaussian
    context = weights @ value
    checks["weights"] = [check_softmax("A", weights, recorded.weights[0, 0], scores)]
    checks["context"] = [check("context", context, recorded.context[0, 0])]
    return SourceAttentionTrace(formula, query, key, value, scores, center, masked_scores, gaussian, weights, context, checks)


def select_finite(ours: Tensor, models: Tensor) -> tuple[Tensor, Tensor]:
    """Drop the positions where both are -inf."""
    finite = (ours > -math.inf) | (models > -math.inf)
    return ours[finite], models[finite]
