"""A trace: the attention weights of the teacher-forced pass over an example, with tokens of rows and columns.

trace = trace_example(predictor, predictor.encode_example("I am trendy"))
for one in trace.maps: one.kind.name, one.layer, one.weights, trace.queries(one), trace.keys(one)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.errors import ConfigError
from heedful.inspection.measures.attention_maps import AttentionMap, attention_maps
from heedful.inspection.measures.attention_norms import attention_norms
from heedful.inspection.measures.merge_words import merge_into_words
from heedful.inspection.measures.rollout import above_attention, rollout
from heedful.tasks.encoded_example import EncodedExample, Tokens
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

    def query_words(self, one: AttentionMap) -> list[int]:
        """For each query the index of its word; -1: a start or end token, or a query that is not a token."""
        example = self.example
        target = number(example.start if example.reads_end else None, example.target, example.end)
        source = number(None, example.source, example.source_end)
        return fit(source if one.kind.queries == "source" else target, one.weights.shape[1])

    def key_words(self, one: AttentionMap) -> list[int]:
        """The same for the keys; the words of the target follow those of the source where both are attended to."""
        example = self.example
        source = number(None, example.source, example.source_end)
        target = number(example.start, example.target, example.end if example.reads_end else None)
        first = max(source, default=-1) + 1
        both = source + [word if word < 0 else first + word for word in target]
        return fit({"source": source, "target": target, "both": both}[one.kind.keys], one.weights.shape[2])

    def word_labels(self, one: AttentionMap) -> tuple[list[str], list[str]]:
        """The words of the queries and of the keys."""
        source = [] if self.example.source is None else words_of(self.example.source)
        target = words_of(self.example.target)
        keys = {"source": source, "target": target, "both": source + target}[one.kind.keys]
        if not any(word >= 0 for word in self.key_words(one)):
            raise ConfigError("this attention is not between tokens and cannot be merged into words", hint="show its tokens")
        return (source if one.kind.queries == "source" else target), keys


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


def number(start: str | None, side: Tokens | None, end: str | None) -> list[int]:
    """The word of each token of a side, -1 for the start and the end token."""
    own = [] if side is None else side.words
    return [*([] if start is None else [-1]), *own, *([] if end is None or side is None else [-1])]


def fit(words: list[int], count: int) -> list[int]:
    """The words if there are `count` tokens, else none (for blocks and compressed keys)."""
    return words if len(words) == count else [-1] * count


def words_of(tokens: Tokens) -> list[str]:
    """The words of the text, or its tokens if each is one; numbers if they do not match its whitespace-separated words."""
    words, count = tokens.text.split(), max(tokens.words, default=-1) + 1
    if len(words) != count and tokens.words == list(range(len(tokens.pieces))):  # the patches of an image
        return tokens.pieces
    return words if len(words) == count else [f"#{index}" for index in range(count)]


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
