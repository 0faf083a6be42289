"""Who looks at whom in one sentence, of real tokens alone: the marks around it and the padding behind it are cut away.

source         p_1 … p_m end          the last column is nobody's
target, fed    start q_1 … q_n        how a token looks at those before it: its row is where it was fed
target, said   q_1 … q_n end          how a token came about: its row is where it was said
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.data.conllu import Arc
from heedful.evaluation.word_alignment import Alignment
from heedful.inspection.alignment import merge_into_words
from heedful.inspection.attention_maps import Kind


class Pieces(NamedTuple):
    """One side of a sentence, cut into pieces; both lists have one entry for each."""

    ids: list[int]  # without marks
    words: list[int]  # the word of the text that it belongs to
    arcs: Sequence[Arc] | None = None  # between those words, where they are known


class AnnotatedPair(NamedTuple):
    source: Pieces | None  # None: there is no source
    target: Pieces
    alignment: Alignment | None = None

    @property
    def source_length(self) -> int:
        return 0 if self.source is None else len(self.source.ids)


class View(NamedTuple):
    weights: Tensor  # (heads, query, key)
    query_words: list[int]
    key_words: list[int]
    shift: int  # the key that query 0 is itself
    word_shift: int  # likewise of words

    @property
    def of_words(self) -> Tensor:
        """(heads, query words, key words)."""
        return merge_into_words(self.weights, self.key_words, self.query_words)

    @property
    def seen(self) -> Tensor:
        """Where looking was allowed, (query, key): some head has some weight there."""
        return self.weights.amax(0) > 0


def is_self_attention(kind: Kind) -> bool:
    """Whether the tokens that look are among those that are looked at."""
    return kind.keys in ("both", kind.queries)


def query_side(kind: Kind, pair: AnnotatedPair) -> Pieces:
    """The tokens that look."""
    pieces = pair.source if kind.queries == "source" else pair.target
    assert pieces is not None, "who has no source does not look at it"
    return pieces


def self_attention_view(kind: Kind, weights: Tensor, pair: AnnotatedPair, width: int) -> View:
    """weights (heads, query, key) with marks and padding; width: of the padded source. Tokens look where they were fed."""
    side = query_side(kind, pair)
    before, here = pair.source_length, len(side.ids)
    if kind.queries == "source":
        return View(weights[:, :here, :here], side.words, side.words, 0, 0)
    if kind.keys == "target" or pair.source is None:
        return View(weights[:, 1 : here + 1, 1 : here + 1], side.words, side.words, 0, 0)
    fed = torch.arange(1, here + 1)
    columns = torch.cat((torch.arange(before), fed + width))  # the source, then the target
    words = max(pair.source.words) + 1
    all_words = [*pair.source.words, *(word + words for word in side.words)]
    return View(weights[:, fed][..., columns], side.words, all_words, before, words)


def source_view(weights: Tensor, pair: AnnotatedPair) -> View:
    """weights (heads, query, key) of tokens of the target, where they were said; the source's columns come first."""
    assert pair.source is not None, "there is a source to look at"
    cut = weights[:, : len(pair.target.ids), : len(pair.source.ids)]
    return View(cut, pair.target.words, pair.source.words, 0, 0)
