"""Attention in the page: labels of rows and columns, and arrays of weights, norms and rollout."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from heedful.inspection.measures.attention_maps import AttentionMap
from heedful.inspection.measures.trace import Trace, Views
from heedful.inspection.page.arrays import Numbers


def trace_content(trace: Trace, views: Views) -> tuple[dict[str, Any], Numbers]:
    """The attention of every head, and its arrays."""
    numbers = Numbers(sum(one.weights.numel() for one in trace.maps))
    labels: list[list[str]] = []

    def label(names: list[str]) -> int:
        if names not in labels:
            labels.append(names)
        return labels.index(names)

    rolled = {one.name: one for one in views.rollout}
    kinds = [
        {
            "name": name,
            "layers": [
                {
                    "layer": one.layer,
                    "heads": len(one.weights),
                    "queries": label(trace.queries(one)),
                    "keys": label(trace.keys(one)),
                    "weights": numbers.add(one.weights),
                    "norms": numbers.add(norms, exact=True),
                    "rollout": numbers.add(rolled[one.name].weights) if one.name in rolled else None,
                }
                for one, norms in maps
            ],
        }
        for name, maps in by_kind(zip(trace.maps, views.norms, strict=True)).items()
    ]
    return {"labels": labels, "kinds": kinds}, numbers


def by_kind(maps: Iterable[tuple[AttentionMap, Tensor]]) -> dict[str, list[tuple[AttentionMap, Tensor]]]:
    """Group by kind of attention, in the order of the model."""
    groups: dict[str, list[tuple[AttentionMap, Tensor]]] = {}
    for pair in sorted(maps, key=lambda pair: pair[0].layer):
        groups.setdefault(pair[0].kind.name, []).append(pair)
    return groups
