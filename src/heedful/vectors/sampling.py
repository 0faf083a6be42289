"""What skip-gram is shown (Mikolov et al., 2013): frequent words are thinned out, windows are of random reach, noise is drawn.

    a word of share f is left out with probability 1 - sqrt(t / f)
    a word at i is paired with those at i - r … i + r of its line, r drawn from 1 … window
    noise is drawn in proportion to count^0.75

Rare and special tokens, and those left out, are gone before windows are laid: their neighbors become neighbors.
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

BLOCK = 16  # consecutive words that share their noise
NOISE = 32  # words drawn for a block
BLOCKS = 64  # to a batch
SLICE = 1 << 18  # tokens read at a time
NOWHERE = -1  # the line of padding, the row of tokens that are not learned


class Vocabulary(NamedTuple):
    ids: NDArray[np.int64]  # (words,): the token of every row
    rows: NDArray[np.int64]  # (vocab,): the row of every token, or NOWHERE
    counts: NDArray[np.int64]  # (words,)

    def shares_kept(self, threshold: float) -> Tensor:
        """sqrt(t / f), at most 1: how much of each word's occurrences is used; all of them when t is 0."""
        share = torch.from_numpy(self.counts / self.counts.sum())
        return (threshold / share).sqrt().clamp(max=1.0).float() if threshold else torch.ones(len(share))

    def noise(self) -> Tensor:
        """(words,): the cumulative distribution of noise words."""
        mass = torch.from_numpy(self.counts.astype(np.float64)).pow(0.75).cumsum(0)
        return mass / mass[-1]


def choose_words(counts: NDArray[np.int64], min_count: int, left_out: tuple[int, ...]) -> Vocabulary:
    """The tokens that occur often enough, in the order of their ids."""
    often = counts >= max(min_count, 1)
    often[list(left_out)] = False
    ids = np.flatnonzero(often)
    rows = np.full(len(counts), NOWHERE, np.int64)
    rows[ids] = np.arange(len(ids))
    return Vocabulary(ids, rows, counts[ids])


class Shown(NamedTuple):
    batch: Batch
    done: float  # which part of the epoch is over when it begins


def batches(
    tokens: Tokens, vocabulary: Vocabulary, generator: torch.Generator, *, window: int, negatives: int, subsample: float
) -> Iterator[Shown]:
    """One epoch over the text, in its order."""
    kept, noise = vocabulary.shares_kept(subsample), vocabulary.noise()
    for begin in range(0, len(tokens.ids), SLICE):
        ids = tokens.ids[begin : begin + SLICE]
        rows, lines = thin_out(ids, vocabulary, kept, generator)
        blocks = lay_out(rows, lines, window)
        for first in range(0, len(blocks.words), BLOCKS):
            part = Blocks(*(tensor[first : first + BLOCKS] for tensor in blocks))
            done = (begin + first / len(blocks.words) * len(ids)) / len(tokens.ids)
            pairs = draw_pairs(part, window, generator)
            drawn = draw_noise(noise, len(part.words), generator)
            yield Shown(make_batch(part.words, part.around, pairs, drawn, negatives), done)


def thin_out(ids: NDArray[np.int32], vocabulary: Vocabulary, kept: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Rows of the words that are used this time, and the line each is on."""
    ends = ids == END_OF_LINE
    lines = torch.from_numpy(np.cumsum(ends))
    rows = torch.from_numpy(np.where(ends, NOWHERE, vocabulary.rows[ids]))
    known = rows != NOWHERE
    rows, lines = rows[known], lines[known]
    used = torch.rand(len(rows), generator=generator) < kept[rows]
    return rows[used], lines[used]


class Blocks(NamedTuple):
    words: Tensor  # (blocks, BLOCK)
    lines: Tensor  # (blocks, BLOCK)
    around: Tensor  # (blocks, BLOCK + 2 x window): the same words and a window on either side
    around_lines: Tensor  # the same shape


def lay_out(rows: Tensor, lines: Tensor, window: int) -> Blocks:
    """Cut a text into blocks; what is missing at its ends is on no line."""
    missing = -len(rows) % BLOCK
    around = BLOCK + 2 * window

    def padded(values: Tensor, filling: int) -> Tensor:
        return torch.nn.functional.pad(values, (window, window + missing), value=filling)

    wide, wide_lines = padded(rows, 0), padded(lines, NOWHERE)
    middle = slice(window, len(wide) - window)
    return Blocks(
        wide[middle].view(-1, BLOCK),
        wide_lines[middle].view(-1, BLOCK),
        wide.unfold(0, around, BLOCK) if len(rows) else wide.new_zeros(0, around),
        wide_lines.unfold(0, around, BLOCK) if len(rows) else wide.new_zeros(0, around),
    )


def draw_pairs(part: Blocks, window: int, generator: torch.Generator) -> Tensor:
    """(blocks, BLOCK, around): which words are paired, every word reaching a random 1 … window far on its own line."""
    reach = torch.randint(1, window + 1, part.words.shape, generator=generator)
    reach = reach.masked_fill(part.lines == NOWHERE, 0)[..., None]  # (blocks, BLOCK, 1)
    distance = (torch.arange(part.around.shape[1]) - window - torch.arange(BLOCK)[:, None]).abs()  # (BLOCK, around)
    distance.masked_fill_(distance == 0, window + 1)  # nobody is paired with itself
    return (distance <= reach) & (part.lines[..., None] == part.around_lines[:, None])


def draw_noise(cumulative: Tensor, blocks: int, generator: torch.Generator) -> Tensor:
    """(blocks, NOISE)."""
    draws = torch.rand(blocks, NOISE, generator=generator, dtype=torch.float64)
    return torch.searchsorted(cumulative, draws, right=True).clamp_(max=len(cumulative) - 1)
