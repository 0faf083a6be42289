"""Resampling of a test set: a corpus score is a function of sums, so a resample costs one matrix product.

    score(corpus) = f(sum_i rows_i)        rows_i: the counts of sentence i (matches, lengths, edits, …)

A bootstrap resample draws all sentences with replacement; its sum is counts @ rows. f is sacreBLEU's own formula, called
once per resample. With the same seed the draws are those of sacreBLEU.

A mean of absolute values, as the calibration error, is larger in resamples than in the corpus, so that the interval of its
resampled scores may not contain the score itself. Then the mean difference, the bootstrap estimate of its bias (Efron and
Tibshirani, 1993, chapter 10), is subtracted from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

BLOCK = 1 << 22  # draws held in memory at once


class Statistics(NamedTuple):
    """The statistics of a scored corpus, enough to score any resample of it."""

    rows: Numbers  # (sentences, counts)
    formula: Callable[[list[float]], float]  # of the summed counts
    signature: str
    is_biased: bool = False  # whether resamples have a larger score on average; it is 0 or more

    def value(self) -> float:
        return self.formula(self.rows.sum(axis=0).tolist())

    def values(self, sums: Numbers) -> Numbers:
        """Return the score of each row of sums: (trials, counts) -> (trials,)."""
        return np.array([self.formula(row) for row in sums.tolist()])

    def bootstrap_values(self, sums: Numbers) -> Numbers:
        """Return the scores of resamples for an interval, without their bias: (trials, counts) -> (trials,)."""
        values = self.values(sums)
        return np.maximum(values - values.mean() + self.value(), 0.0) if self.is_biased else values


def bootstrap_sums(rows: Numbers, trials: int, seed: int) -> Numbers:
    """Return the summed counts of `trials` resamples of the sentences: (trials, counts)."""
    sentences = len(rows)
    generator = np.random.default_rng(seed)
    sums = []
    for block in _blocks(trials, sentences):
        drawn = generator.choice(sentences, size=(block, sentences), replace=True)
        drawn += np.arange(block)[:, None] * sentences  # a separate range of bins for each trial
        counts = np.bincount(drawn.ravel(), minlength=block * sentences).reshape(block, sentences)
        sums.append(counts @ rows)  # (block, counts)
    return np.concatenate(sums)


def swapped_sums(first: Numbers, second: Numbers, trials: int, seed: int) -> tuple[Numbers, Numbers]:
    """Swap the two systems' outputs on a random half of the sentences and return both sums: two (trials, counts)."""
    sentences = len(first)
    generator = np.random.default_rng(seed)
    sums = []
    for block in _blocks(trials, sentences):
        kept = generator.integers(2, size=(block, sentences), dtype=bool)
        sums.append(second.sum(axis=0) + kept @ (first - second))  # (block, counts)
    mixed = np.concatenate(sums)
    return mixed, first.sum(axis=0) + second.sum(axis=0) - mixed


def interval(values: Numbers) -> tuple[float, float]:
    """Return the central 95% interval of resampled values: 1/40 is cut off at each end."""
    ordered = np.sort(values)
    cut = len(ordered) // 40
    return float(ordered[cut]), float(ordered[len(ordered) - 1 - cut])


def _blocks(trials: int, sentences: int) -> Iterator[int]:
    """Yield block sizes, in trials, of at most BLOCK draws each (and at least one trial)."""
    size = max(1, BLOCK // sentences)
    for start in range(0, trials, size):
        yield min(size, trials - start)
