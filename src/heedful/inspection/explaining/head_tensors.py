"""The tensors of one head in full, for one query: from them each stage of its explanation can be computed again.

    q = x W_Q + b_Q , k = memory W_K + b_K , v = memory W_V + b_V      S = q K^T       S' = S / sqrt(head_dim) + bias
    A = softmax(S' masked)      out = A V + r      c = out W_O

Attention of a recurrent decoder has no projections, scale or W_O; its scores come from a score function:

    dot         S = q K^T                   additive    S = tanh(q W + K) u                   location    S = q W

Numbers are rounded to 8 significant digits, more than single precision has; None: masked, or a part the head does not have.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from heedful.inspection.explaining.heads import HeadTrace, output_projection, projection_of
from heedful.inspection.explaining.recording import RecordedAttention
from heedful.inspection.explaining.source_attention import SourceAttentionTrace
from heedful.nn.attention import join_heads
from heedful.nn.positions import frequencies
from heedful.nn.scores import Additive, Location, SourceAttention

Plain = float | list[Any] | None
DIGITS = 8
PROJECTIONS = ("query", "key", "value")


@torch.no_grad()
def head_tensors(recorded: RecordedAttention, trace: HeadTrace, head: int, query: int) -> dict[str, Any]:
    """query: the index of the query."""
    heads, projected = recorded.context.shape[1], trace.x is not None
    linears = {name: projection_of(recorded.owner, name, head, heads) for name in PROJECTIONS} if projected else {}
    return {
        "query": query,
        "position": len(trace.key) - len(trace.query) + query,  # of the query, where keys before it are cached
        "x": row(trace.x, query),
        "memory": plain(trace.memory),
        "projections": {name: {"weight": plain(weight.T), "bias": plain(bias)} for name, (weight, bias) in linears.items()},
        "frequencies": plain(frequencies(trace.query.shape[-1]).double()) if trace.rotary else None,
        "score": "dot",
        "q": row(trace.query, query),
        "k": plain(trace.key),
        "v": plain(trace.value),
        "scores": row(trace.scores, query),
        "divisor": math.sqrt(trace.query.shape[-1]),
        "bias": row(trace.bias, query),
        "masked_scores": row(trace.masked_scores, query),
        "gaussian": None,
        "weights": row(trace.weights, query),
        "position_context": row(trace.position_context, query),
        "context": row(trace.context, query),
        "output_weight": plain(output_weight(recorded, head)) if projected else None,
        "contribution": None if trace.contributions is None else row(trace.contributions[head], query),
    }


def output_weight(recorded: RecordedAttention, head: int) -> Tensor:
    """The rows of W_O of one head, (head_dim, dim): the output for each unit vector of the head, without the bias."""
    _, heads, _, size = recorded.context.shape
    out = output_projection(recorded.owner)
    units = torch.zeros(1, heads, size, size, dtype=torch.double, device=recorded.context.device)
    units[0, head] = torch.eye(size, dtype=torch.double)
    joined = join_heads(units)
    found: Tensor = (out(joined) - out(torch.zeros_like(joined)))[0]
    return found


@torch.no_grad()
def source_attention_tensors(recorded: RecordedAttention, trace: SourceAttentionTrace, query: int) -> dict[str, Any]:
    owner = recorded.owner
    assert isinstance(owner, SourceAttention), "called for SourceAttention only"
    score, weight, value = owner.score, None, None
    if isinstance(score, Additive):
        weight, value = score.query.weight.double().T, score.value.weight.double()[0]
    elif isinstance(score, Location):
        weight = score.place.weight.double().T[:, : len(trace.key)]
    absent = ("position", "x", "memory", "frequencies", "divisor", "bias", "position_context", "output_weight", "contribution")
    return {
        "query": query,
        "projections": {},
        "score": "additive" if isinstance(score, Additive) else "location" if isinstance(score, Location) else "dot",
        "score_weight": plain(weight),
        "score_value": plain(value),
        "q": row(trace.query, query),
        "k": plain(trace.key),
        "v": plain(trace.value),
        "scores": row(trace.scores, query),
        "masked_scores": row(trace.masked_scores, query),
        "gaussian": row(trace.gaussian, query),
        "weights": row(trace.weights, query),
        "context": row(trace.context, query),
        **dict.fromkeys(absent),
    }


def row(values: Tensor | None, at: int) -> Plain:
    return None if values is None else plain(values[at])


def plain(values: Tensor | None) -> Plain:
    return None if values is None else rounded(values.tolist())


def rounded(value: Any) -> Plain:
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
