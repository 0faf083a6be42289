"""Skip-gram training data (Mikolov et al., 2013): subsampling of frequent words, random window sizes, negative sampling.

    a word of relative frequency f is dropped with probability 1 - sqrt(t / f)
    a word at i is paired with those at i - r … i + r of its line, r uniform in 1 … window
    negative samples are drawn in proportion to count^0.75

Rare, special and dropped tokens are removed before windows are formed, so that their neighbors become adjacent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.vectors.skipgram import Batch, make_batch
from heedful.vectors.tokens import END_OF_LINE, Tokens

BLOCK = 16  # consecutive words that share their negative samples
NOISE = 32  # negative samples per block
BLOCKS = 64  # per batch
SLICE = 1 << 18  # tokens read at a time
MISSING = -1  # line of padding, row of tokens without a vector


class Vocabulary(NamedTuple):
    ids: NDArray[np.int64]  # (words,): the token of every row
    rows: NDArray[np.int64]  # (vocab,): the row of every token, or MISSING
    counts: NDArray[np.int64]  # (words,)

    def shares_kept(self, threshold: float) -> Tensor:
        """Return the probability of keeping each word, sqrt(t / f), at most 1; 1 if t is 0."""
        share = torch.from_numpy(self.counts / self.counts.sum())
        return (threshold / share).sqrt().clamp(max=1.0).float() if threshold else torch.ones(len(share))

    def noise(self) -> Tensor:
        """Return the cumulative distribution of negative samples, (words,)."""
        mass = torch.from_numpy(self.counts.astype(np.float64)).pow(0.75).cumsum(0)
        return mass / mass[-1]


def choose_words(counts: NDArray[np.int64], min_count: int, left_out: tuple[int, ...]) -> Vocabulary:
    """Return the tokens that occur at least min_count times, without `left_out`, in the order of their ids."""
    frequent = counts >= max(min_count, 1)
    frequent[list(left_out)] = False
    ids = np.flatnonzero(frequent)
    rows = np.full(len(counts), MISSING, np.int64)
    rows[ids] = np.arange(len(ids))
    return Vocabulary(ids, rows, counts[ids])


class BatchAt(NamedTuple):
    batch: Batch
    done: float  # fraction of the epoch before this batch


def batches(
    tokens: Tokens, vocabulary: Vocabulary, generator: torch.Generator, *, window: int, negatives: int, subsample: float
) -> Iterator[BatchAt]:
    """Yield the batches of one epoch, in the order of the text."""
    kept, noise = vocabulary.shares_kept(subsample), vocabulary.noise()
    for begin in range(0, len(tokens.ids), SLICE):
        ids = tokens.ids[begin : begin + SLICE]
        rows, lines = subsample_words(ids, vocabulary, kept, generator)
        blocks = make_blocks(rows, lines, window)
        for first in range(0, len(blocks.words), BLOCKS):
            part = Blocks(*(tensor[first : first + BLOCKS] for tensor in blocks))
            done = (begin + first / len(blocks.words) * len(ids)) / len(tokens.ids)
            pairs = draw_pairs(part, window, generator)
            drawn = draw_noise(noise, len(part.words), generator)
            yield BatchAt(make_batch(part.words, part.around, pairs, drawn, negatives), done)


def subsample_words(
    ids: NDArray[np.int32], vocabulary: Vocabulary, kept: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return the rows of the words kept in this epoch, (kept,), and their lines, (kept,)."""
    ends = ids == END_OF_LINE
    lines = torch.from_numpy(np.cumsum(ends))
    rows = torch.from_numpy(np.where(ends, MISSING, vocabulary.rows[ids]))
    known = rows != MISSING
    rows, lines = rows[known], lines[known]
    used = torch.rand(len(rows), generator=generator) < kept[rows]
    return rows[used], lines[used]


class Blocks(NamedTuple):
    words: Tensor  # (blocks, BLOCK)
    lines: Tensor  # (blocks, BLOCK)
    around: Tensor  # (blocks, BLOCK + 2 x window): the same words with a window on either side
    around_lines: Tensor  # the same shape


def make_blocks(rows: Tensor, lines: Tensor, window: int) -> Blocks:
    """Split a text into blocks; padding at its ends has the line MISSING."""
    missing = -len(rows) % BLOCK
    around = BLOCK + 2 * window

    def padded(values: Tensor, filling: int) -> Tensor:
        return torch.nn.functional.pad(values, (window, window + missing), value=filling)

    wide, wide_lines = padded(rows, 0), padded(lines, MISSING)
    middle = slice(window, len(wide) - window)
    return Blocks(
        wide[middle].view(-1, BLOCK),
        wide_lines[middle].view(-1, BLOCK),
        wide.unfold(0, around, BLOCK) if len(rows) else wide.new_zeros(0, around),
        wide_lines.unfold(0, around, BLOCK) if len(rows) else wide.new_zeros(0, around),
    )


def draw_pairs(part: Blocks, window: int, generator: torch.Generator) -> Tensor:
    """Return which words are paired, (blocks, BLOCK, around): within a random distance of 1 … window on the same line."""
    reach = torch.randint(1, window + 1, part.words.shape, generator=generator)
    reach = reach.masked_fill(part.lines == MISSING, 0)[..., None]  # (blocks, BLOCK, 1)
    distance = (torch.arange(part.around.shape[1]) - window - torch.arange(BLOCK)[:, None]).abs()  # (BLOCK, around)
    distance.masked_fill_(distance == 0, window + 1)  # no word is paired with itself
    return (distance <= reach) & (part.lines[..., None] == part.around_lines[:, None])


def draw_noise(cumulative: Tensor, blocks: int, generator: torch.Generator) -> Tensor:
    """Draw negative samples, (blocks, NOISE)."""
    draws = torch.rand(blocks, NOISE, generator=generator, dtype=torch.float64)
    return torch.searchsorted(cumulative, draws, right=True).clamp_(max=len(cumulative) - 1)
