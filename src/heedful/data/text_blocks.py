"""Blocks of text: consecutive sequences of tokens, cut at another offset every time.

    one text         an epoch has all blocks of one cut
    mixed corpora    an epoch has round(weight x blocks) of each corpus, at least one; every pass over a corpus is a new cut

A block is known by its first token, counted from the beginning of the first text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.data.mixing import corpus_counts, draw_passes, temper_weights

Starts = NDArray[np.int64]  # (blocks,)

CUT = 1  # in the keys of the offsets, so that they differ from those of the order


class BlockShape(NamedTuple):
    width: int  # tokens of a block
    stride: int  # tokens from the beginning of a block to that of the next


class JoinedText:
    """The tokens of several texts, one after the other; a sequence is inside one of them."""

    def __init__(self, texts: Sequence[NDArray[Any]]) -> None:
        self.texts, self.sizes = tuple(texts), tuple(map(len, texts))
        self.begins = np.cumsum([0, *self.sizes])  # (texts + 1,)

    def rows(self, starts: Starts, width: int) -> NDArray[np.int64]:
        """The sequences of `width` tokens that begin there, (rows, width)."""
        numbers = np.searchsorted(self.begins, starts, side="right") - 1  # (rows,)
        rows = np.empty((len(starts), width), np.int64)
        for number in np.unique(numbers):
            chosen = numbers == number
            first = starts[chosen] - self.begins[number]
            rows[chosen] = self.texts[number][first[:, None] + np.arange(width)]
        return rows

    def span(self, begin: int, end: int) -> NDArray[Any]:
        """The tokens from one position to another."""
        number = int(np.searchsorted(self.begins, begin, side="right")) - 1
        first = int(self.begins[number])
        return self.texts[number][begin - first : end - first]


def cut_blocks(tokens: int, shape: BlockShape, generator: np.random.Generator) -> Starts:
    """The blocks of one cut of a text, from a random offset below the stride."""
    last = tokens - shape.width  # the last possible start
    return np.arange(generator.integers(min(shape.stride, last + 1)), last + 1, shape.stride)


def count_blocks(tokens: int, shape: BlockShape) -> int:
    """The number of blocks that every cut of a text has; some cuts have one more."""
    return max((tokens - shape.width + 1) // shape.stride, 1) if tokens >= shape.width else 0


class BlockMixture:
    """The blocks of several corpora that an epoch trains on."""

    def __init__(self, tokens: Sequence[int], shape: BlockShape, weights: Sequence[float], temperature: float = 1.0) -> None:
        self.tokens, self.shape = tokens, shape
        self.begins = np.cumsum([0, *tokens])
        self.sizes = [count_blocks(size, shape) for size in tokens]
        self.weights = temper_weights(self.sizes, weights, temperature)

    def counts(self) -> list[int]:
        """The number of blocks of each corpus in an epoch."""
        return corpus_counts(self.sizes, self.weights)

    def draw(self, *, seed: int, epoch: int, static: bool = False) -> Starts:
        """The blocks of an epoch, corpus by corpus; static: every pass over a corpus has the same cut."""
        drawn = [np.zeros(0, np.int64)]
        for one in draw_passes(self.sizes, self.weights, seed=seed, epoch=epoch):
            key = np.random.SeedSequence((seed, one.corpus, 0 if static else one.number, CUT))
            starts = cut_blocks(self.tokens[one.corpus], self.shape, np.random.default_rng(key))
            drawn.append(self.begins[one.corpus] + starts[one.chosen])
        return np.concatenate(drawn)
