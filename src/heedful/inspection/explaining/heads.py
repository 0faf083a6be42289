"""One attention head of a trained model, recomputed in double precision from the layer's input x.

    q = x W_Q + b,  k and v likewise      S = q k^T / sqrt(head_dim) + bias      A = softmax(S, masked)      out = A v

and out W_O, the head's contribution to the layer's output. Every stage is compared with the model's own values.
"""

from __future__ import annotations

import math
from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Tensor, nn

from heedful.errors import ConfigError
from heedful.inspection.explaining.recording import RecordedAttention
from heedful.inspection.explaining.stages import Check, check, check_softmax
from heedful.nn.attention import AttentionBias, AttentionCore, CrossAttention, SelfAttention, join_heads
from heedful.nn.positions import frequencies


class HeadTrace(NamedTuple):
    """Intermediate results of one head, in double precision."""

    x: Tensor | None  # (query, dim) the input of the query projection, if there is one
    memory: Tensor | None  # (key, dim) the input of the key and value projections; in self-attention it is x
    query: Tensor  # (query, head_dim)
    key: Tensor  # (key, head_dim)
    value: Tensor  # (key, head_dim)
    rotary: bool  # queries and keys are rotated by their positions
    scores: Tensor  # (query, key)
    bias: Tensor | None  # (query, key), positional
    masked_scores: Tensor  # (query, key) scaled, biased, and -inf where masked
    weights: Tensor  # (query, key)
    position_context: Tensor | None  # (query, head_dim), added to the context by relative positions
    context: Tensor  # (query, head_dim)
    contributions: Tensor | None  # (heads, query, dim): each head's context times its rows of W_O
    checks: dict[str, list[Check]]  # by stage


@torch.no_grad()
def trace_head(recorded: RecordedAttention, head: int) -> HeadTrace:
    if not isinstance(getattr(recorded.owner, "core", None), AttentionCore | None):
        raise ConfigError(
            "this attention depends on the states of other utterances, and has no stages to show; expected attention with "
            "queries and keys",
            hint="use heed inspect attention, which shows its weights",
        )
    query, key, value, attention_bias = recorded.core_calls[-1][0]
    parts = {name: x[0, head].double() for name, x in (("query", query), ("key", key), ("value", value))}
    inputs = projection_inputs(recorded)
    checks: dict[str, list[Check]] = {"projections": []}
    for name, x in inputs.items():
        ours = project(recorded.owner, name, x, head, query.shape[1])  # (new, head_dim)
        before = len(parts[name]) - len(ours)  # keys that the cache already holds
        if recorded.rotary and name != "value":
            ours = rotate(ours, first=len(parts["key"]) - len(ours))
        checks["projections"].append(check(name, ours, parts[name][before:]))
        parts[name] = torch.cat((parts[name][:before], ours))
    scores = parts["query"] @ parts["key"].T
    scaled = scores / math.sqrt(query.shape[-1])
    bias = attention_bias.bias  # (rows, heads or 1, query, key)
    bias = None if bias is None else bias[0, head if bias.shape[1] > 1 else 0].double()
    scaled = scaled if bias is None else scaled + bias
    mask = build_mask(attention_bias, scaled)
    masked_scores = scaled if mask is None else scaled.masked_fill(~mask, -math.inf)
    weights = masked_scores.softmax(-1).nan_to_num(0.0)  # a query without any key has weights of 0
    position_context = None if attention_bias.mix is None else attention_bias.mix(recorded.weights)[0, head].double()
    context = weights @ parts["value"]
    context = context if position_context is None else context + position_context
    checks["weights"] = [check_softmax("A", weights, recorded.weights[0, head], scaled)]
    checks["context"] = [check("out", context, recorded.context[0, head])]
    contributions = None
    if inputs:
        contributions, output = project_heads(recorded.owner, recorded.context[0].double())
        expected = recorded.part_calls["out"][0 if recorded.encodes_source else -1][1][0]
        checks["contributions"] = [check("the sum of all heads' contributions and the bias", output, expected)]
    return HeadTrace(
        inputs.get("query"),
        inputs.get("key"),
        parts["query"],
        parts["key"],
        parts["value"],
        recorded.rotary,
        scores,
        bias,
        masked_scores,
        weights,
        position_context,
        context,
        contributions,
        checks,
    )


def projection_inputs(recorded: RecordedAttention) -> dict[str, Tensor]:
    """The inputs of the query, key and value projections, (time, dim) each; empty where there are no projections."""

    def input_of(part: str) -> Tensor:
        x: Tensor = recorded.part_calls[part][0 if recorded.encodes_source else -1][0][0]
        return x[0].double()

    if isinstance(recorded.owner, SelfAttention):
        return dict.fromkeys(("query", "key", "value"), input_of("project"))
    if isinstance(recorded.owner, CrossAttention):
        return {"query": input_of("query")} | dict.fromkeys(("key", "value"), input_of("memory"))
    return {}


def project(owner: nn.Module, name: str, x: Tensor, head: int, heads: int) -> Tensor:
    """Apply one head's projection: x (time, dim) -> x W^T + b, (time, head_dim)."""
    weight, bias = projection_of(owner, name, head, heads)
    return x @ weight.T + bias


def projection_of(owner: nn.Module, name: str, head: int, heads: int) -> tuple[Tensor, Tensor]:
    """One head's rows of the query, key or value projection: weight (head_dim, dim) and bias (head_dim)."""
    if isinstance(owner, CrossAttention):
        linear = owner.query if name == "query" else owner.memory
        block = 1 if name == "value" else 0  # memory holds keys, then values
    else:
        assert isinstance(owner, SelfAttention), "only these have projections"
        linear, block = owner.project, ("query", "key", "value").index(name)
    size = owner.out.weight.shape[1] // heads
    rows = slice((block * heads + head) * size, (block * heads + head + 1) * size)
    return linear.weight[rows].double(), linear.bias[rows].double()


def rotate(x: Tensor, first: int) -> Tensor:
    """Rotate each pair of dimensions, a point in the plane, by p w_k at position p (Su et al., 2021). x (time, head_dim)."""
    angles = torch.arange(first, first + len(x), device=x.device)[:, None] * frequencies(x.shape[-1]).to(x.device)
    points = torch.view_as_complex(x.reshape(len(x), -1, 2))  # (time, head_dim / 2)
    return torch.view_as_real(points * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


def build_mask(attention_bias: AttentionBias, scores: Tensor) -> Tensor | None:
    """(query, key), True where attention is allowed; None if it is allowed everywhere."""
    if attention_bias.causal:
        return torch.ones_like(scores, dtype=torch.bool).tril()
    return None if attention_bias.mask is None else attention_bias.mask[0, 0].expand_as(scores)


def project_heads(owner: nn.Module, context: Tensor) -> tuple[Tensor, Tensor]:
    """context (heads, query, head_dim) -> each head's contribution (heads, query, dim), and the layer's output (query, dim)."""
    out = output_projection(owner)
    identity = torch.eye(len(context), device=context.device, dtype=context.dtype)
    isolated = identity[:, :, None, None] * context  # (heads, heads, query, head_dim), one head not zero in each
    bias = out(torch.zeros_like(join_heads(context[None])))  # (1, query, dim)
    contributions = out(join_heads(isolated)) - bias  # (heads, query, dim)
    return contributions, contributions.sum(0) + bias[0]


def output_projection(owner: nn.Module) -> nn.Module:
    """W_O in double precision; includes head gates, which are deterministic in eval mode."""
    assert isinstance(owner, SelfAttention | CrossAttention), "only these have an output projection"
    return deepcopy(owner.out).double().eval()
