"""Attention maps: the attention weights of every layer and head of a model of any family.

    for attention in attention_maps(model, example.forward):
        attention.kind, attention.layer, attention.weights        # AttentionKind("cross", …), 0, (heads, query, key)

The weights are recorded in one teacher-forced pass over the finished target, not during search.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from heedful.nn.hooks import record
from heedful.nn.model import AttentionKind, AttentionLayer, Model, inference_context
from heedful.tasks.encoded_example import Forward


class AttentionMap(NamedTuple):
    """The attention weights of one kind in one layer."""

    name: str  # of the hook point
    kind: AttentionKind
    layer: int
    weights: Tensor  # (heads, query, key)


def selected_attentions(model: Model, kinds: tuple[str, ...]) -> list[AttentionLayer]:
    """The attention of these kinds; none given: of all kinds."""
    return [one for one in model.attentions() if not kinds or one.kind.name in kinds]


def attention_maps(model: Model, forward: Forward, *kinds: str) -> list[AttentionMap]:
    """Return the attention weights of these kinds (default: all) in the pass over an example."""
    selected = selected_attentions(model, kinds)
    if not selected:
        return []
    with inference_context(model), record(model, *(one.weights for one in selected)) as recorded:
        forward(model, 1)
    executed = [one for one in selected if one.weights in recorded]  # an empty source is not encoded
    return [AttentionMap(one.weights, one.kind, one.layer, recorded[one.weights][0]) for one in executed]
