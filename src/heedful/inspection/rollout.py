"""Rollout: where attention leads through all layers below ("Quantifying Attention Flow in Transformers", Abnar and Zuidema,
2020).

    R_0 = I,    R_l = (A_l + I) / 2  R_{l-1}        A_l: the mean over the heads of layer l; I: the residual connection

Row i of R_l says how much of each token of the input is left in token i after layer l; rows sum to 1. It is said of
attention to one's own sequence. Where a source is read and then continued in one sequence, both are parts of one matrix.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from heedful.inspection.attention_maps import AttentionMap
from heedful.nn.attention import AttentionCore, NoHeads


def rollout(maps: Sequence[AttentionMap]) -> list[AttentionMap]:
    """The maps of one pass -> for each layer that looks at its own sequence one map, (1, query, key).

    A layer without heads changes nothing. One that reads in blocks or looks at summaries of several tokens ends it: there is
    none of that layer and of those above it; nor is there any above a layer that does not attend (see `above_attention`)."""
    flows: dict[str, list[tuple[int, Tensor]]] = {}
    ended: set[str] = set()
    found = []
    for one in maps:
        kind, weights = one.kind, one.weights.mean(0)  # (query, key)
        before = weights.shape[1] - weights.shape[0]  # how many keys stand before the first query
        if kind.queries != kind.keys != "both" or kind.name in ended or (before and kind.keys == "both" and "reading" in ended):
            continue
        below = last_below(flows.get(kind.name), one.layer)
        if kind.keys == "both" and below is not None and before:
            below = prepend_source(last_below(flows.get("reading"), one.layer), below)
        if (before and kind.keys != "both") or (below is not None and len(below) != weights.shape[1]):
            ended |= {kind.name}
            continue
        here = (weights + torch.eye(weights.shape[1]).to(weights)[before:]) / 2
        flow = here if below is None else here @ below
        flows.setdefault(kind.name, []).append((one.layer, flow))
        found.append(one._replace(weights=flow[None]))
    return found


def above_attention(model: nn.Module, maps: Sequence[AttentionMap]) -> list[AttentionMap]:
    """Those below which every layer of the stack attends, or did before its heads were taken out: what a convolution or a
    recurrence does to a token's content is not known."""

    def attends(name: str) -> bool:
        return any(isinstance(module, AttentionCore | NoHeads) for module in model.get_submodule(name).modules())

    stacks = {one.name: one.name.split(f".{one.layer}.")[0] for one in maps}
    return [one for one in maps if all(attends(f"{stacks[one.name]}.{below}") for below in range(one.layer))]


def last_below(flows: list[tuple[int, Tensor]] | None, layer: int) -> Tensor | None:
    return next((flow for at, flow in reversed(flows or []) if at < layer), None)


def prepend_source(read: Tensor | None, said: Tensor) -> Tensor:
    """(source, source) above (target, source + target): the whole sequence, if all of it is known."""
    return said if read is None else torch.cat((functional.pad(read, (0, said.shape[1] - read.shape[1])), said))
