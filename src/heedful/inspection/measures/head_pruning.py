"""Head pruning: remove heads with a closed gate from the weights without changing the output.

    out = sum_i g_i head_i W_i + b        W_i: the rows of W_O for head i

For g_i = 0 the head's part of the projections and W_i are removed; for other heads g_i is multiplied into W_i. If all heads of
a layer are removed, b remains, since it does not depend on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from heedful.errors import ConfigError
from heedful.inspection.measures.importance import LossFunction, within_layer
from heedful.nn.gates import gates, inference_gate, prunable_attentions
from heedful.nn.hooks import hook
from heedful.nn.model import Model

Kept = dict[str, list[int]]  # name of an attention -> heads to keep
BLOCKS = {"project": 3, "query": 1, "memory": 2}  # input projections, and how many are fused into one matrix


class RankedHead(NamedTuple):
    """A head and its importance."""

    attention: str
    head: int
    score: float


def open_heads(model: Model) -> Kept:
    """Return the heads whose gate is not closed; all heads of modules without gates."""
    closed = {name: inference_gate(log_a.detach()) == 0 for name, log_a in gates(model).items()}
    return {
        name: [head for head in range(one.heads) if name not in closed or not closed[name][head]]
        for name, one in prunable_attentions(model).items()
    }


def head_scores(
    model: Model, losses: Iterable[LossFunction], score: Callable[[Model, LossFunction], dict[str, Tensor]]
) -> dict[str, Tensor]:
    """Return by name of an attention that can be pruned the scores of its heads, normalized within the layer, (heads,).

    losses: of batches; score: `gate_gradients` or `ablations`."""
    by_module: dict[nn.Module, Tensor] = {}  # a decoder-only model reads the source with the heads of its self-attention
    for loss in losses:
        scores = score(model, loss)
        for attention in model.attentions():
            if (of_heads := scores.get(attention.weights)) is not None:
                by_module[attention.module] = by_module.get(attention.module, torch.zeros_like(of_heads)) + of_heads
    return {name: within_layer(by_module[one.module]) for name, one in prunable_attentions(model).items()}


def rank_heads(model: Model, scores: Mapping[str, Tensor], kind: str | None = None) -> list[RankedHead]:
    """Return the heads of a kind that can be pruned, default: of all kinds, the most important first."""
    names = [name for name, one in prunable_attentions(model).items() if kind in (None, one.kind.name)]
    ranked = [RankedHead(name, head, value) for name in names for head, value in enumerate(scores[name].tolist())]
    return sorted(ranked, key=lambda head: -head.score)


@contextmanager
def ablated(model: Model, heads: Iterable[RankedHead]) -> Iterator[None]:
    """Set the context vectors of these heads to zero, in every kind of attention that their module computes: the output is that
    of the pruned model."""
    removed: dict[nn.Module, list[int]] = {}
    prunable = prunable_attentions(model)
    for head in heads:
        removed.setdefault(prunable[head.attention].module, []).append(head.head)
    with ExitStack() as hooks:
        for attention in model.attentions():
            if attention.module in removed:
                hooks.enter_context(hook(model, attention.context, partial(remove_heads, removed[attention.module])))
        yield


def remove_heads(heads: Sequence[int], name: str, context: Tensor) -> Tensor:
    """context (rows, heads, query, head_dim)."""
    keep = torch.ones(context.shape[1], device=context.device, dtype=context.dtype)
    keep[list(heads)] = 0.0
    return context * keep[:, None, None]


def best_heads(model: Model, scores: Mapping[str, Tensor], counts: Mapping[str, int]) -> Kept:
    """Keep the `counts[kind]` heads of each kind with the highest scores (heads,), and all heads of other kinds."""
    prunable = prunable_attentions(model)
    kept = {name: list(range(one.heads)) for name, one in prunable.items()}
    for kind, count in counts.items():
        names = [name for name, one in prunable.items() if one.kind.name == kind]
        total = sum(len(kept[name]) for name in names)
        if count > total:
            raise ConfigError(f"given {count} heads to keep of kind {kind!r}, but the model has {total}")
        ranked = [RankedHead(name, head, float(scores[name][head])) for name in names for head in kept[name]]
        best = sorted(ranked, key=lambda head: -head.score)[:count]
        kept |= {name: sorted(head.head for head in best if head.attention == name) for name in names}
    return kept


def heads_left(model: Model, kept: Kept, before: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """Return by kind the number of heads of each layer, including layers without heads; before: the same before pruning."""
    counts = {kind: list(layers) for kind, layers in before.items()}
    for name, one in prunable_attentions(model).items():
        counts[one.kind.name][one.layer] = len(kept[name])
    return {kind: tuple(layers) for kind, layers in counts.items()}


def shrink(model: Model, kept: Kept) -> dict[str, Tensor]:
    """Return the state dict with only the kept heads and without gates."""
    weights = {name: weight.detach() for name, weight in model.state_dict().items()}
    values = {name: inference_gate(log_a.detach()) for name, log_a in gates(model).items()}
    for name, one in prunable_attentions(model).items():
        if name in values:
            del weights[f"{name}.out.log_a"]
        own = {part: weights.pop(f"{name}.{part}") for part in parameter_names(name, weights)}
        gate = values.get(name, torch.ones(one.heads))
        weights |= {f"{name}.{part}": weight for part, weight in prune_attention(own, one.heads, kept[name], gate).items()}
    return weights


def parameter_names(name: str, weights: Iterable[str]) -> list[str]:
    return [weight.removeprefix(f"{name}.") for weight in weights if weight.startswith(f"{name}.")]


def prune_attention(own: Mapping[str, Tensor], heads: int, kept: Sequence[int], gate: Tensor) -> dict[str, Tensor]:
    """Return the weights of one attention module with only the kept heads; gate (heads,)."""
    if not kept:
        return {"bias": own["out.bias"]}
    indices = torch.tensor(kept)
    out = own["out.weight"].view(-1, heads, own["out.weight"].shape[1] // heads)  # (dim, heads, head_dim)
    out = out * gate.to(out)[:, None]
    pruned = {"out.weight": out[:, indices].flatten(1).contiguous(), "out.bias": own["out.bias"]}
    for part, weight in own.items():
        if (blocks := BLOCKS.get(part.split(".")[0])) is not None:
            rows = weight.view(blocks, heads, -1, *weight.shape[1:])  # (blocks, heads, head_dim, …)
            pruned[part] = rows[:, indices].flatten(0, 2).contiguous()
    assert pruned.keys() == own.keys(), "every parameter of an attention module is handled"
    return pruned
