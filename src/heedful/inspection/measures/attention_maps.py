"""Attention maps: the attention weights of every layer and head of a model of any family.

    for attention in attention_maps(model, source, target_in):
        attention.kind, attention.layer, attention.weights        # AttentionKind("cross", …), 0, (heads, query, key)

The weights are recorded in one teacher-forced pass over the finished target, not during search.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from heedful.nn.hooks import record
from heedful.nn.model import AttentionKind, AttentionLayer, SequenceModel, inference_context


class AttentionMap(NamedTuple):
    """The attention weights of one kind in one layer."""

    name: str  # of the hook point
    kind: AttentionKind
    layer: int
    weights: Tensor  # (heads, query, key)


def selected_attentions(model: SequenceModel, kinds: tuple[str, ...]) -> list[AttentionLayer]:
    """The attention of these kinds; none given: of all kinds."""
    return [one for one in model.attentions() if not kinds or one.kind.name in kinds]


def attention_maps(model: SequenceModel, source: Tensor, target_in: Tensor, *kinds: str) -> list[AttentionMap]:
    """Return the attention weights of these kinds (default: all). source (1, source time), target_in (1, target time)."""
    selected = selected_attentions(model, kinds)
    if not selected:
        return []
    with inference_context(model), record(model, *(one.weights for one in selected)) as recorded:
        model.forced(source, None, target_in)
    executed = [one for one in selected if one.weights in recorded]  # an empty source is not encoded
    return [AttentionMap(one.weights, one.kind, one.layer, recorded[one.weights][0]) for one in executed]
