"""Length-bucketed batches under a token budget.

    cost of a batch = rows x longest side of any of its rows <= budget

The end token and padding count. A plan is a pure function of (lengths, budget, seed, epoch), independent of the number
of workers and ranks. Every index is in exactly one batch.

Pairs are sorted by their longer side m and, among those of one m, by source - target, so that both sides of a batch
are near its longest; every other m is sorted in descending order, so that neighbors stay similar where one m ends and the
next begins. A little noise on the second key varies the composition of batches from epoch to epoch, at the cost of some
padding. Then the sorted pairs are cut into batches, and the batches are shuffled.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64]
Lengths = NDArray[np.integer[Any]]  # as in a store, without the end token

END = 1  # the end token of each side
JITTER = 3.0  # noise on source - target, in tokens; on Multi30k padding goes from 3.5 to 5 %, without the second key to 7 %


def plan_epoch(
    source_lengths: Lengths,
    target_lengths: Lengths,
    *,
    budget: int,
    seed: int,
    epoch: int,
    indices: Index | None = None,
    pad_to_multiple_of: int = 1,
) -> list[Index]:
    """Return the batches of an epoch, each an array of indices.

    `indices` selects pairs, as `mix_corpora` returns them (a pair may occur twice); default: all.
    With `pad_to_multiple_of`, lengths are rounded up to a multiple of it.
    A pair longer than the budget gets a batch of its own; `count_over_budget` counts these.
    """
    source, target = (lengths if indices is None else lengths[indices] for lengths in (source_lengths, target_lengths))
    longer, difference = np.maximum(source, target) + END, np.subtract(source, target, dtype=np.int32)
    del source, target
    generator = np.random.default_rng(np.random.SeedSequence((seed, epoch)))
    noise = generator.random(len(longer))
    order = np.argsort(longer, kind="stable")
    longer = longer[order]
    ends = [*np.flatnonzero(np.diff(longer)) + 1, len(longer)] if len(longer) else []
    for begin, end in pairwise([0, *ends]):  # one m at a time, so that only its keys are in memory
        group = order[begin:end]
        key = difference[group] + noise[group] * JITTER
        group[:] = group[np.argsort(key if longer[begin] % 2 == 0 else -key, kind="stable")]
    del noise, difference
    starts = find_batch_starts(-(-longer // pad_to_multiple_of) * pad_to_multiple_of, budget)
    batches = np.split(order if indices is None else indices[order], starts[1:]) if starts else []
    return [batches[at] for at in generator.permutation(len(batches))]


def find_batch_starts(longer: NDArray[np.int64], budget: int) -> list[int]:
    """Return where each batch starts; each has as many of the sorted pairs as the budget allows, and at least one."""
    starts: list[int] = []
    at = 0
    while at < len(longer):
        starts.append(at)
        window = longer[at : at + budget // int(longer[at])]  # an upper bound: as if all were as short as the first
        costs = np.arange(1, len(window) + 1) * window  # sorted, so the last row is the longest
        at += max(int(np.searchsorted(costs, budget, side="right")), 1)
    return starts


def count_over_budget(source_lengths: Lengths, target_lengths: Lengths, budget: int) -> int:
    """Return how many single pairs are longer than the budget."""
    return int(np.count_nonzero(np.maximum(source_lengths, target_lengths) + END > budget))


def padding_fraction(plan: Sequence[Index], source_lengths: Lengths, target_lengths: Lengths) -> float:
    """Return the fraction of positions of both sides that is padding: 1 - tokens / sum of (rows x longest of the side)."""
    tokens = space = 0
    for batch in plan:
        for lengths in (source_lengths[batch] + END, target_lengths[batch] + END):
            tokens += int(lengths.sum())
            space += len(batch) * int(lengths.max())
    return 1 - tokens / space if space else 0.0


def corpus_counts(sizes: Sequence[int], weights: Sequence[float]) -> list[int]:
    """Return how many pairs of each corpus an epoch has: round(weight x size), at least one."""
    return [max(round(weight * size), 1) if size else 0 for size, weight in zip(sizes, weights, strict=True)]


def temper_weights(sizes: Sequence[int], weights: Sequence[float], temperature: float) -> list[float]:
    """Return weights with which corpus i has a share of an epoch proportional to (weight_i x size_i)^(1 / temperature).

    The epoch keeps its number of pairs. A temperature of 1 changes nothing; above 1, small corpora get more than their size, up
    to equal shares (Arivazhagan et al., 2019).
    """
    amounts = [weight * size for size, weight in zip(sizes, weights, strict=True)]
    raised = [amount ** (1 / temperature) for amount in amounts]
    scale = sum(amounts) / sum(raised)
    return [scale * share / size for share, size in zip(raised, sizes, strict=True)]


def mix_corpora(sizes: Sequence[int], weights: Sequence[float], *, seed: int, epoch: int) -> Index:
    """Return the pairs of several corpora that an epoch trains on, as indices into their concatenation.

    Of each corpus an epoch has the number of pairs of `corpus_counts`: weight 1 is the corpus once, 3 is three times, 0.25 a
    quarter of it. Each corpus is repeated in a new order each time, and an epoch continues where the
    previous one stopped: a quarter is another quarter each epoch, and after any epoch the numbers of times that two
    pairs of a corpus were used differ by at most one.
    """
    parts: list[Index] = []
    offset = 0
    for number, (size, count) in enumerate(zip(sizes, corpus_counts(sizes, weights), strict=True)):
        first, last = epoch * count, (epoch + 1) * count
        while first < last:
            repetition, begin = divmod(first, size)
            end = min(begin + last - first, size)
            order = np.random.default_rng(np.random.SeedSequence((seed, number, repetition))).permutation(size)
            parts.append(order[begin:end] + offset)
            first += end - begin
        offset += size
    if len(parts) == 1:
        return parts[0]  # not copied
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
