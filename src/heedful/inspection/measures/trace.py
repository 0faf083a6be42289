"""A trace: the attention weights of the teacher-forced pass over an example, with tokens of rows and columns.

trace = trace_example(predictor, predictor.encode_example("I am trendy"))
for one in trace.maps: one.kind.name, one.layer, one.weights, trace.queries(one), trace.keys(one)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.inspection.measures.attention_maps import AttentionMap, attention_maps
from heedful.inspection.measures.attention_norms import attention_norms
from heedful.inspection.measures.merge_words import merge_into_words
from heedful.inspection.measures.rollout import above_attention, rollout
from heedful.tasks.encoded_example import EncodedExample
from heedful.tasks.predictor import Predictor


class Trace(NamedTuple):
    example: EncodedExample
    maps: list[AttentionMap]

    def queries(self, one: AttentionMap) -> list[str]:
        """The tokens of the queries. The row of a target token is the step that predicts it, including the end token."""
        tokens = self.example.source_tokens if one.kind.queries == "source" else self.example.queries
        return names_or_numbers(tokens, one.weights.shape[1])

    def input_tokens(self, one: AttentionMap) -> list[str]:
        """The tokens consumed at the steps of the target queries, where rows are not labeled by them; empty for source
        queries."""
        inputs = [] if self.example.reads_end else self.example.inputs
        return inputs if one.kind.queries == "target" and len(inputs) == one.weights.shape[1] else []

    def keys(self, one: AttentionMap) -> list[str]:
        """The tokens of the keys. Of the target: the previous tokens, including the start token."""
        source, target = self.example.source_tokens, self.example.inputs
        return names_or_numbers(
            {"source": source, "target": target, "both": source + target}[one.kind.keys], one.weights.shape[2]
        )


class Views(NamedTuple):
    """Values derived from the attention weights of a trace."""

    norms: list[Tensor]  # for each map (heads, 1 or query, key): norms of the projected value vectors
    rollout: list[AttentionMap]  # of layers for which it is defined
    words: dict[int, Tensor]  # layer -> (heads, target words, source words)


def trace_example(predictor: Predictor, example: EncodedExample) -> Trace:
    """Record the attention weights of a pass; weights that are not finite are an error of the checkpoint."""
    maps = attention_maps(predictor.model.base_model, example.forward)
    for one in maps:
        if not bool(one.weights.isfinite().all()):
            raise predictor.system.nonfinite_error(f"hook point {one.name}")
    return Trace(example, maps)


def views_of(predictor: Predictor, trace: Trace) -> Views:
    """Compute norms, rollout and word-level weights of a trace."""
    model = predictor.model.base_model
    norms = attention_norms(model, trace.example.forward)
    return Views([one.norms for one in norms], rollout(above_attention(model, trace.maps)), word_maps(trace))


def names_or_numbers(tokens: Sequence[str], count: int) -> list[str]:
    """The tokens if there are `count` of them, else numbers (for blocks and compressed keys)."""
    return list(tokens) if len(tokens) == count else [f"#{index}" for index in range(count)]


def word_maps(trace: Trace) -> dict[int, Tensor]:
    """The attention to the source between words: layer -> (heads, target words, source words)."""
    source, target = trace.example.source, trace.example.target
    if source is None or not source.ids or not target.ids:
        return {}
    to_source = [one for one in trace.maps if one.kind.queries == "target" and one.kind.keys in ("source", "both")]
    return {
        one.layer: torch.stack(
            [
                merge_into_words(head[: len(target.words), : len(source.words)], source.words, target.words)
                for head in one.weights
            ]
        )
        for one in to_source
        if one.weights.shape[0]
    }
