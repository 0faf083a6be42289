"""Attention weights of one sentence without special tokens and padding.

source             p_1 … p_m end      the column of the end token is dropped
target, input      start q_1 … q_n    self-attention: the row of a token is the step that consumes it
target, output     q_1 … q_n end      cross-attention: the row of a token is the step that predicts it
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from heedful.inspection.measures.merge_words import merge_into_words
from heedful.nn.model import AttentionKind
from heedful.tasks.forced import EncodedSample, Pieces


class View(NamedTuple):
    weights: Tensor  # (heads, query, key)
    query_words: list[int]
    key_words: list[int]
    shift: int  # key index of query 0
    word_shift: int  # the same for words

    @property
    def of_words(self) -> Tensor:
        """(heads, query words, key words)."""
        return merge_into_words(self.weights, self.key_words, self.query_words)

    @property
    def attended(self) -> Tensor:
        """Mask of allowed attention, (query, key): True where some head has a positive weight."""
        return self.weights.amax(0) > 0


def is_self_attention(kind: AttentionKind) -> bool:
    """Return whether the queries are among the keys."""
    return kind.keys in ("both", kind.queries)


def query_side(kind: AttentionKind, sample: EncodedSample) -> Pieces:
    """Return the tokens of the queries."""
    pieces = sample.source if kind.queries == "source" else sample.target
    assert pieces is not None, "attention from the source needs a source"
    return pieces


def self_attention_view(kind: AttentionKind, weights: Tensor, sample: EncodedSample, width: int) -> View:
    """weights (heads, query, key) with special tokens and padding; width: of the padded source. Target rows: the steps that
    consume the tokens."""
    side = query_side(kind, sample)
    before, count = sample.source_length, len(side.ids)
    if kind.queries == "source":
        return View(weights[:, :count, :count], side.words, side.words, 0, 0)
    if kind.keys == "target" or sample.source is None:
        tokens = slice(sample.before, sample.before + count)
        return View(weights[:, tokens, tokens], side.words, side.words, 0, 0)
    rows = torch.arange(1, count + 1)
    columns = torch.cat((torch.arange(before), rows + width))  # the source, then the target
    words = max(sample.source.words) + 1
    all_words = [*sample.source.words, *(word + words for word in side.words)]
    return View(weights[:, rows][..., columns], side.words, all_words, before, words)


def source_view(weights: Tensor, sample: EncodedSample) -> View:
    """weights (heads, query, key) with source columns first. Rows: the steps that predict the target tokens."""
    assert sample.source is not None, "cross-attention needs a source"
    cut = weights[:, : len(sample.target.ids), : len(sample.source.ids)]
    return View(cut, sample.target.words, sample.source.words, 0, 0)
