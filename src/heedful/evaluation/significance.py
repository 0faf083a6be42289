"""Significance tests of the difference between two systems on the same test set.

Paired bootstrap (Koehn 2004): resample the test set; p is the fraction of resamples in which the better system on the
full set is not better. One-sided; the resampled differences also give the interval of the difference.

Approximate randomization (Riezler & Maxwell 2005): if the systems were equal, swapping their outputs on a random half
of the sentences would not matter; p is the fraction of swaps with a difference at least as large. Two-sided.

    p = (1 + trials against the difference) / (1 + trials)

so p is never 0, and a system compared with itself has p = 1. A two-sided p is about twice as large: where the first p is
0.03, the second is near 0.06. The verdict uses the second, which tests for a difference in either direction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heedful.errors import ConfigError, lookup
from heedful.evaluation.metrics import METRICS, MIN_RESAMPLES, SEED, Options, Score, add_resamples, check_counts
from heedful.evaluation.resampling import Statistics, bootstrap_sums, interval, swapped_sums

STANDARD = Options()
LEVEL = 0.05  # significance level


@dataclass(frozen=True, slots=True)
class Comparison:
    metric: str
    baseline: Score
    system: Score
    difference: float  # system - baseline, in the metric's own direction (a better TER is negative)
    low: float  # 95% interval of the resampled differences
    high: float
    p_bootstrap: float
    p_randomization: float
    verdict: str  # for example "significantly better at 0.05"


def compare(
    baseline: Sequence[str],
    system: Sequence[str],
    references: Sequence[str],
    *,
    metric: str = "bleu",
    options: Options = STANDARD,
    trials: int = 1000,
    seed: int = SEED,
) -> Comparison:
    """Score two systems on the same references and test their difference."""
    chosen = lookup(metric, METRICS, "metric")
    check_counts(baseline=baseline, system=system, references=references)
    if trials < MIN_RESAMPLES:
        raise ConfigError(
            f"a comparison requires at least {MIN_RESAMPLES} trials, but has {trials}", hint="use 1000, the usual number"
        )
    sides = (chosen.statistics(lines, references, options) for lines in (baseline, system))
    return compare_statistics(metric, *sides, higher_is_better=chosen.higher_is_better, trials=trials, seed=seed)


def compare_statistics(
    metric: str, first: Statistics, second: Statistics, *, higher_is_better: bool, trials: int = 1000, seed: int = SEED
) -> Comparison:
    """Test the difference of two systems, the baseline first, given the statistics of both on the same test set."""
    difference = second.value() - first.value()

    both = bootstrap_sums(np.hstack([first.rows, second.rows]), trials, seed)  # the same draw for both systems
    first_values, second_values = (
        statistics.bootstrap_values(sums) for statistics, sums in zip((first, second), np.hsplit(both, 2), strict=True)
    )
    differences = second_values - first_values
    low, high = interval(differences)
    signature = add_resamples(first.signature, trials, seed)
    p_randomization = _randomize(first, second, abs(difference), trials=trials, seed=seed)
    return Comparison(
        metric=metric,
        baseline=Score(metric, first.value(), *interval(first_values), signature),
        system=Score(metric, second.value(), *interval(second_values), signature),
        difference=difference,
        low=low,
        high=high,
        p_bootstrap=_share(differences * np.sign(difference) <= 0),
        p_randomization=p_randomization,
        verdict=describe_significance(p_randomization, (difference > 0) == higher_is_better),
    )


def describe_significance(p: float, ahead: bool) -> str:
    """Describe a p-value; ahead: whether the system's score is better."""
    if p >= LEVEL:
        return f"no significant difference at {LEVEL}"
    return f"significantly {'better' if ahead else 'worse'} at {LEVEL}"


def _randomize(first: Statistics, second: Statistics, difference: float, *, trials: int, seed: int) -> float:
    first_sums, second_sums = swapped_sums(first.rows, second.rows, trials, seed)
    return _share(np.abs(first.values(first_sums) - second.values(second_sums)) >= difference)


def _share(against: NDArray[np.bool_]) -> float:
    return float((1 + against.sum()) / (1 + len(against)))
