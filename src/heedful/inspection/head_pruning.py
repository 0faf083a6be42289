"""Removal: heads that do nothing are cut out of the weights, and what is left says the same.

    out = sum_i g_i head_i W_i + b        W_i: the rows of W_O that read head i

A head with g_i = 0 takes its part of the projections and its W_i with it; the g_i of one that stays is multiplied into W_i.
Where all heads of a layer go, b stays: it never depended on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from heedful.errors import ConfigError
from heedful.inspection.attention_maps import layer_of
from heedful.nn.gates import attentions, gates, inference_gate, kind_of

Kept = dict[str, list[int]]  # by the name of an attention: the heads that stay
BLOCKS = {"project": 3, "query": 1, "memory": 2}  # maps to the heads, and how many are fused into one


class RankedHead(NamedTuple):
    """A head and how much it matters."""

    attention: str
    head: int
    score: float


def open_heads(model: nn.Module) -> Kept:
    """Whose gates are not closed; where there are no gates, all."""
    closed = {name: inference_gate(log_a.detach()) == 0 for name, log_a in gates(model).items()}
    return {
        name: [head for head in range(one.heads) if name not in closed or not closed[name][head]]
        for name, one in attentions(model).items()
    }


def best_heads(model: nn.Module, scores: Mapping[str, Tensor], wanted: Mapping[str, int]) -> Kept:
    """Of each kind in `wanted` the so many heads with the highest scores, by attention (heads,); of the others all."""
    kept = {name: list(range(one.heads)) for name, one in attentions(model).items()}
    for kind, count in wanted.items():
        names = [name for name in kept if kind_of(name) == kind]
        there = sum(len(kept[name]) for name in names)
        if count > there:
            raise ConfigError(f"given {count} heads to keep of kind {kind!r}, but the model has {there}")
        ranked = [RankedHead(name, head, float(scores[name][head])) for name in names for head in kept[name]]
        chosen = sorted(ranked, key=lambda one: -one.score)[:count]
        kept |= {name: sorted(one.head for one in chosen if one.attention == name) for name in names}
    return kept


def heads_left(kept: Kept, before: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """By kind the heads of each layer, those of layers that had none already included; before: the same of the model."""
    counts = {kind: list(layers) for kind, layers in before.items()}
    for name, heads in kept.items():
        kind = kind_of(name)
        assert kind is not None, f"{name} was found by its kind"
        counts[kind][layer_of(name)] = len(heads)
    return {kind: tuple(layers) for kind, layers in counts.items()}


def shrink(model: nn.Module, kept: Kept) -> dict[str, Tensor]:
    """The weights of the model without the other heads and without gates."""
    weights = {name: weight.detach() for name, weight in model.state_dict().items()}
    values = {name: inference_gate(log_a.detach()) for name, log_a in gates(model).items()}
    for name, one in attentions(model).items():
        if name in values:
            del weights[f"{name}.out.log_a"]
        own = {part: weights.pop(f"{name}.{part}") for part in parameter_names(name, weights)}
        gate = values.get(name, torch.ones(one.heads))
        weights |= {f"{name}.{part}": weight for part, weight in prune_attention(own, one.heads, kept[name], gate).items()}
    return weights


def parameter_names(name: str, weights: Iterable[str]) -> list[str]:
    return [weight.removeprefix(f"{name}.") for weight in weights if weight.startswith(f"{name}.")]


def prune_attention(own: Mapping[str, Tensor], heads: int, kept: Sequence[int], gate: Tensor) -> dict[str, Tensor]:
    """The weights of one attention, with `heads` heads and a gate for each, (heads,)."""
    if not kept:
        return {"bias": own["out.bias"]}
    stays = torch.tensor(kept)
    out = own["out.weight"].view(-1, heads, own["out.weight"].shape[1] // heads)  # (dim, heads, head_dim)
    out = out * gate.to(out)[:, None]
    found = {"out.weight": out[:, stays].flatten(1).contiguous(), "out.bias": own["out.bias"]}
    for part, weight in own.items():
        if (blocks := BLOCKS.get(part.split(".")[0])) is not None:
            rows = weight.view(blocks, heads, -1, *weight.shape[1:])  # (blocks, heads, head_dim, …)
            found[part] = rows[:, stays].flatten(0, 2).contiguous()
    assert found.keys() == own.keys(), "every part of an attention is known"
    return found
