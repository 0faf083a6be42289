"""Mixtures of corpora: what an epoch takes of each.

    weight 1 is a corpus once, 3 is three times, 0.25 a quarter of it, another quarter in the next epoch

What is drawn, sentence pairs or blocks of text, is known by its index in the corpus.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from heedful.data.batching import Index, index_type


def corpus_counts(sizes: Sequence[int], weights: Sequence[float]) -> list[int]:
    """Return how many examples of each corpus an epoch has: round(weight x size), at least one."""
    return [max(round(weight * size), 1) if size else 0 for size, weight in zip(sizes, weights, strict=True)]


def temper_weights(sizes: Sequence[int], weights: Sequence[float], temperature: float) -> list[float]:
    """Return weights with which corpus i has a share of an epoch proportional to (weight_i x size_i)^(1 / temperature).

    The epoch keeps its number of examples. A temperature of 1 changes nothing; above 1, small corpora get more than their size,
    up to equal shares (Arivazhagan et al., 2019).
    """
    if temperature == 1:
        return list(weights)
    amounts = [weight * size for size, weight in zip(sizes, weights, strict=True)]
    raised = [amount ** (1 / temperature) for amount in amounts]
    scale = sum(amounts) / sum(raised)
    return [scale * share / size for share, size in zip(raised, sizes, strict=True)]


class Pass(NamedTuple):
    """What an epoch takes from a pass over a corpus."""

    corpus: int
    number: int  # of the pass, from 0 in the first epoch
    chosen: Index  # indices in the corpus, in random order


def draw_passes(sizes: Sequence[int], weights: Sequence[float], *, seed: int, epoch: int) -> Iterator[Pass]:
    """Yield the passes over each corpus that an epoch takes something from, corpus by corpus.

    Of each corpus an epoch has the number of examples of `corpus_counts`. Every pass has its own order, and an epoch continues
    where the previous one stopped: after any epoch, the numbers of times that two examples of a corpus were used differ by at
    most one.
    """
    kind = index_type(sum(sizes))
    for corpus, (size, count) in enumerate(zip(sizes, corpus_counts(sizes, weights), strict=True)):
        first, last = epoch * count, (epoch + 1) * count
        while first < last:
            number, begin = divmod(first, size)
            end = min(begin + last - first, size)
            order = np.arange(size, dtype=kind)
            np.random.default_rng(np.random.SeedSequence((seed, corpus, number))).shuffle(order)
            yield Pass(corpus, number, order[begin:end])
            first += end - begin


def describe_mixture(counts: Sequence[int], unit: str) -> str:
    """What an epoch has of each corpus, as the end of a line on the training data; nothing for a single corpus."""
    return f"; {' + '.join(f'{count:,}' for count in counts)} {unit} of the corpora in an epoch" if len(counts) > 1 else ""


def mix_corpora(sizes: Sequence[int], weights: Sequence[float], *, seed: int, epoch: int) -> Index:
    """Return the examples of several corpora that an epoch trains on, as indices into their concatenation."""
    begins = np.cumsum([0, *sizes]).tolist()
    mixed = np.empty(sum(corpus_counts(sizes, weights)), index_type(sum(sizes)))
    at = 0
    for one in draw_passes(sizes, weights, seed=seed, epoch=epoch):
        np.add(one.chosen, begins[one.corpus], out=mixed[at : at + len(one.chosen)])
        at += len(one.chosen)
    return mixed
