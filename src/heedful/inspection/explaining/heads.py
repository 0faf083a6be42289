"""One head of a trained model computed again, in double precision, from x on.

    q = x W_Q + b,  k and v likewise      S = q k^T / sqrt(head_dim) + bias      A = softmax(S, masked)      out = A v

and out W_O, this head's share of what the layer says. Every stage is compared with what the model had there.
"""

from __future__ import annotations

import math
from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Tensor, nn

from heedful.inspection.explaining.recording import RecordedAttention
from heedful.inspection.explaining.stages import Check, check, check_softmax
from heedful.nn.attention import AttentionBias, CrossAttention, SelfAttention, join_heads
from heedful.nn.positions import frequencies


class HeadTrace(NamedTuple):
    """(query, …) and (key, …), all in double precision."""

    x: Tensor | None  # (query, dim) what the queries are made of, where they are a linear map of something
    query: Tensor  # (query, head_dim)
    key: Tensor  # (key, head_dim)
    value: Tensor  # (key, head_dim)
    turned: bool  # queries and keys, by their positions
    scores: Tensor  # (query, key)
    bias: Tensor | None  # (query, key), of a position scheme
    seen: Tensor  # (query, key) scaled, biased, and -inf where nobody may look
    weights: Tensor  # (query, key)
    mixed: Tensor | None  # (query, head_dim), what a position scheme adds to what was found
    found: Tensor  # (query, head_dim)
    shares: Tensor | None  # (heads, query, dim): what W_O makes of each head
    checks: dict[str, list[Check]]  # by stage


@torch.no_grad()
def head_of(recorded: RecordedAttention, head: int) -> HeadTrace:
    query, key, value, attention_bias = recorded.looking[-1][0]
    parts = {name: x[0, head].double() for name, x in (("query", query), ("key", key), ("value", value))}
    inputs = inputs_of(recorded)
    checks: dict[str, list[Check]] = {"projected": []}
    for name, x in inputs.items():
        ours = project(recorded.owner, name, x, head, query.shape[1])  # (new, head_dim)
        before = len(parts[name]) - len(ours)  # keys of what was read before this pass, which are remembered
        if recorded.rotary and name != "value":
            ours = turn(ours, first=len(parts["key"]) - len(ours))
        checks["projected"].append(check(name, ours, parts[name][before:]))
        parts[name] = torch.cat((parts[name][:before], ours))
    scores = parts["query"] @ parts["key"].T
    scaled = scores / math.sqrt(query.shape[-1])
    bias = None if attention_bias.bias is None else attention_bias.bias[0, head].double()
    scaled = scaled if bias is None else scaled + bias
    mask = mask_of(attention_bias, scaled)
    seen = scaled if mask is None else scaled.masked_fill(~mask, -math.inf)
    weights = seen.softmax(-1).nan_to_num(0.0)  # who may look nowhere takes nothing
    mixed = None if attention_bias.mix is None else attention_bias.mix(recorded.weights)[0, head].double()
    found = weights @ parts["value"]
    found = found if mixed is None else found + mixed
    checks["weights"] = [check_softmax("A", weights, recorded.weights[0, head], scaled)]
    checks["found"] = [check("out", found, recorded.found[0, head])]
    shares = None
    if inputs:
        shares, together = through_output(recorded.owner, recorded.found[0].double())
        said = recorded.around["out"][0 if recorded.reads else -1][1][0]
        checks["shares"] = [check("the sum of all heads' shares and the bias", together, said)]
    q, k, v = parts.values()
    return HeadTrace(inputs.get("query"), q, k, v, recorded.rotary, scores, bias, seen, weights, mixed, found, shares, checks)


def inputs_of(recorded: RecordedAttention) -> dict[str, Tensor]:
    """What queries, keys and values are linear maps of, (time, dim) each; nothing where they are something else."""

    def into(part: str) -> Tensor:
        given: Tensor = recorded.around[part][0 if recorded.reads else -1][0][0]
        return given[0].double()

    if isinstance(recorded.owner, SelfAttention):
        return dict.fromkeys(("query", "key", "value"), into("project"))
    if isinstance(recorded.owner, CrossAttention):
        return {"query": into("query")} | dict.fromkeys(("key", "value"), into("memory"))
    return {}


def project(owner: nn.Module, name: str, x: Tensor, head: int, heads: int) -> Tensor:
    """x (time, dim) -> x W^T + b of one head, (time, head_dim)."""
    if isinstance(owner, CrossAttention):
        linear = owner.query if name == "query" else owner.memory
        block = 1 if name == "value" else 0  # memory holds keys, then values
    else:
        assert isinstance(owner, SelfAttention), "only these project"
        linear, block = owner.project, ("query", "key", "value").index(name)
    size = owner.out.weight.shape[1] // heads
    rows = slice((block * heads + head) * size, (block * heads + head + 1) * size)
    return x @ linear.weight[rows].double().T + linear.bias[rows].double()


def turn(x: Tensor, first: int) -> Tensor:
    """Each pair of numbers is a point on a plane; position p turns it by p w_k (Su et al., 2021). x (time, head_dim)."""
    angles = torch.arange(first, first + len(x), device=x.device)[:, None] * frequencies(x.shape[-1]).to(x.device)
    points = torch.view_as_complex(x.reshape(len(x), -1, 2))  # (time, head_dim / 2)
    return torch.view_as_real(points * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


def mask_of(attention_bias: AttentionBias, scores: Tensor) -> Tensor | None:
    """(query, key), or None where all may be seen."""
    if attention_bias.causal:
        return torch.ones_like(scores, dtype=torch.bool).tril()
    return None if attention_bias.mask is None else attention_bias.mask[0, 0].expand_as(scores)


def through_output(owner: nn.Module, found: Tensor) -> tuple[Tensor, Tensor]:
    """found (heads, query, head_dim) -> each head's share of the output, and the output (query, dim)."""
    assert isinstance(owner, SelfAttention | CrossAttention), "only these have an output map"
    out = deepcopy(owner.out).double().eval()  # gates of heads, where it has any, are part of it and are not drawn
    alone = torch.eye(len(found), device=found.device, dtype=found.dtype)[:, :, None, None] * found  # (heads, heads, query, …)
    bias = out(torch.zeros_like(join_heads(found[None])))  # (1, query, dim)
    shares = out(join_heads(alone)) - bias  # (heads, query, dim)
    return shares, shares.sum(0) + bias[0]
