"""Is one system better than another, or was the test set lucky? Two answers from the same sentences.

Paired bootstrap (Koehn 2004): resample the test set; p is the share of resamples in which the system that is ahead
on the whole set is not ahead. One-sided; the resampled differences also give the interval of the difference.

Approximate randomization (Riezler & Maxwell 2005): if the systems were alike, exchanging their outputs on any half
of the sentences would do nothing; p is the share of exchanges with a difference at least as large. Two-sided.

    p = (1 + trials that speak against) / (1 + trials)

so p is never 0, and a system compared with itself has p = 1. Two sides weigh about double: where the first p is 0.03, the
second is near 0.06. The verdict goes by the second, which asks whether there is a difference and not in whose favor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heedful.errors import ConfigError, lookup
from heedful.evaluation.metrics import FEWEST, METRICS, SEED, Options, Score, check_counts, resampled_signature
from heedful.evaluation.resampling import Statistics, bootstrap_sums, interval, swapped_sums

STANDARD = Options()
LEVEL = 0.05  # of a p below which chance is held to be a poor explanation


@dataclass(frozen=True, slots=True)
class Comparison:
    metric: str
    baseline: Score
    system: Score
    difference: float  # system - baseline, in the metric's own direction (a better TER is negative)
    low: float  # 95 per cent of the resampled differences
    high: float
    p_bootstrap: float
    p_randomization: float
    verdict: str  # on the system, in words


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
    if trials < FEWEST:
        raise ConfigError(f"a comparison needs at least {FEWEST} trials, but has {trials}", hint="1000 is usual")
    first = chosen.statistics(baseline, references, options)
    second = chosen.statistics(system, references, options)
    difference = second.value() - first.value()

    both = bootstrap_sums(np.hstack([first.rows, second.rows]), trials, seed)  # the same draw for both systems
    first_values, second_values = (
        statistics.values(sums) for statistics, sums in zip((first, second), np.hsplit(both, 2), strict=True)
    )
    differences = second_values - first_values
    low, high = interval(differences)
    signature = resampled_signature(first.signature, trials, seed)
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
        verdict=verdict(p_randomization, (difference > 0) == chosen.higher_is_better),
    )


def verdict(p: float, ahead: bool) -> str:
    """What a p says of the system."""
    if p >= LEVEL:
        return f"no significant difference at {LEVEL}"
    return f"significantly {'better' if ahead else 'worse'} at {LEVEL}"


def _randomize(first: Statistics, second: Statistics, difference: float, *, trials: int, seed: int) -> float:
    ones, others = swapped_sums(first.rows, second.rows, trials, seed)
    return _share(np.abs(first.values(ones) - second.values(others)) >= difference)


def _share(against: NDArray[np.bool_]) -> float:
    return float((1 + against.sum()) / (1 + len(against)))
