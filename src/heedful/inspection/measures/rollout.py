"""Attention rollout through all layers below ("Quantifying Attention Flow in Transformers", Abnar and Zuidema,
2020).

    R_0 = I,    R_l = (A_l + I) / 2  R_{l-1}        A_l: the mean over the heads of layer l; I: the residual connection

Row i of R_l holds the share of each input token in token i after layer l; rows sum to 1. Rollout is defined for self-attention.
Where source and target form one sequence, both are parts of one matrix.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from heedful.inspection.measures.attention_maps import AttentionMap
from heedful.nn.attention import AttentionCore, NoHeads
from heedful.nn.hooks import hook_points
from heedful.nn.model import Model


def rollout(maps: Sequence[AttentionMap]) -> list[AttentionMap]:
    """Attention maps of one pass -> one map (1, query, key) for each layer of self-attention.

    A layer without heads is the identity. Block-local and compressed attention have no rollout, nor have the layers above them,
    nor layers above a layer without attention (see `above_attention`)."""
    flows: dict[str, list[tuple[int, Tensor]]] = {}
    ended: set[str] = set()
    results = []
    for one in maps:
        kind, weights = one.kind, one.weights.mean(0)  # (query, key)
        before = weights.shape[1] - weights.shape[0]  # number of keys before the first query
        if kind.queries != kind.keys != "both" or kind.name in ended or (before and kind.keys == "both" and "reading" in ended):
            continue
        below = last_below(flows.get(kind.name), one.layer)
        if kind.keys == "both" and below is not None and before:
            below = prepend_source(last_below(flows.get("reading"), one.layer), below)
        if (before and kind.keys != "both") or (below is not None and len(below) != weights.shape[1]):
            ended |= {kind.name}
            continue
        mixed = (weights + torch.eye(weights.shape[1]).to(weights)[before:]) / 2
        flow = mixed if below is None else mixed @ below
        flows.setdefault(kind.name, []).append((one.layer, flow))
        results.append(one._replace(weights=flow[None]))
    return results


def above_attention(model: Model, maps: Sequence[AttentionMap]) -> list[AttentionMap]:
    """Return the maps of layers below which every layer has attention (or had, before its heads were pruned): rollout is not
    defined for convolutions and recurrences."""

    def attends(layer: nn.Module) -> bool:
        return any(isinstance(module, AttentionCore | NoHeads) for module in layer.modules())

    blocks, above = model.blocks(), []
    for one in maps:
        point = hook_points(model)[one.name]
        at = next((at for at, block in enumerate(blocks) if any(module is point for module in block.modules())), 0)
        if all(attends(block) for block in blocks[at - one.layer : at]):  # the layers below it in its stack
            above.append(one)
    return above


def last_below(flows: list[tuple[int, Tensor]] | None, layer: int) -> Tensor | None:
    """Return the rollout of the nearest layer below."""
    return next((flow for at, flow in reversed(flows or []) if at < layer), None)


def prepend_source(source: Tensor | None, target: Tensor) -> Tensor:
    """source (source, source), target (target, source + target) -> (source + target, source + target)."""
    return target if source is None else torch.cat((functional.pad(source, (0, target.shape[1] - source.shape[1])), target))
