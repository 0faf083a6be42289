"""Two systems on one test set: equal, clearly different, and in between with the p-values of sacreBLEU."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.significance import PairedTest

from heedful.errors import ConfigError, DataError
from heedful.evaluation.metrics import METRICS, Options
from heedful.evaluation.resampling import Statistics, bootstrap_sums, swapped_sums
from heedful.evaluation.significance import compare

WORDS = [f"{a}{b}" for a in "bdfgklmnprst" for b in ("a", "e", "io", "un", "esta")]


def references(lines: int) -> list[str]:
    generator = random.Random(3)
    return [" ".join(generator.choices(WORDS, k=generator.randint(5, 14))) for _ in range(lines)]


def damage(lines: list[str], share: float, seed: int) -> list[str]:
    generator = random.Random(seed)
    return [" ".join("x" if generator.random() < share else word for word in line.split()) for line in lines]


@pytest.mark.parametrize("metric", METRICS)
def test_a_system_compared_with_itself_is_not_better(metric: str) -> None:
    lines = references(30)
    system = damage(lines, 0.2, seed=1)
    result = compare(system, system, lines, metric=metric, trials=100)
    assert (result.difference, result.low, result.high) == (0, 0, 0)
    assert (result.p_bootstrap, result.p_randomization) == (1, 1)
    assert result.verdict == "no significant difference at 0.05"


@pytest.mark.parametrize("metric", METRICS)
def test_a_clearly_better_system_is_significant(metric: str) -> None:
    lines = references(100)
    worse, better = damage(lines, 0.3, seed=1), damage(lines, 0.05, seed=2)
    result = compare(worse, better, lines, metric=metric, trials=500)
    sign = 1 if METRICS[metric].higher_is_better else -1
    assert sign * result.difference > 0
    assert result.low < result.difference < result.high
    assert min(sign * result.low, sign * result.high) > 0
    assert result.p_bootstrap == result.p_randomization == 1 / 501
    assert result.difference == result.system.value - result.baseline.value
    assert result.system == METRICS[metric](better, lines, bootstrap=500)
    assert result.verdict == "significantly better at 0.05"
    assert compare(better, worse, lines, metric=metric, trials=100).verdict == "significantly worse at 0.05"


def test_swapping_the_systems_negates_the_difference() -> None:
    lines = references(60)
    one, other = damage(lines, 0.2, seed=1), damage(lines, 0.17, seed=2)
    there, back = compare(one, other, lines, trials=300), compare(other, one, lines, trials=300)
    assert there.difference == -back.difference != 0
    assert (there.low, there.high) == (-back.high, -back.low)
    assert there.p_bootstrap == back.p_bootstrap
    assert there.p_randomization == pytest.approx(back.p_randomization, abs=0.1)


@pytest.mark.parametrize(("name", "own"), [("bleu", BLEU), ("chrf", CHRF), ("ter", TER)])
def test_p_values_agree_with_those_of_sacrebleu(name: str, own: type) -> None:
    lines = references(200)
    worse, better = damage(lines, 0.20, seed=5), damage(lines, 0.17, seed=6)
    result = compare(worse, better, lines, metric=name, trials=1000)
    assert 0.002 < result.p_randomization < 0.5  # neither extreme, so that the comparison is informative

    def theirs(kind: str) -> float:
        test = PairedTest([("worse", worse), ("better", better)], {name: own()}, [lines], test_type=kind, n_samples=1000)
        scores = test()[1]
        p = next(value for key, value in scores.items() if key != "System")[1].p_value
        assert p is not None
        return float(p)

    # the same swaps; sacreBLEU excludes those whose difference is exactly equal (TER counts whole edits)
    assert theirs("ar") <= result.p_randomization <= theirs("ar") + (0.01 if name == "ter" else 0)
    # the same resamples; sacreBLEU counts the upper tail about the mean, Koehn the resamples lost
    assert result.p_bootstrap == pytest.approx(theirs("bs"), abs=0.015)


def test_lowercase_and_tokenizer_apply_to_both_systems() -> None:
    lines = references(20)
    shouted = [line.upper() for line in lines]
    result = compare(shouted, lines, lines, options=Options(lowercase=True, tokenize="char"), trials=50)
    assert result.difference == 0
    assert "case:lc" in result.system.signature and "tok:char" in result.system.signature


def test_same_seed_same_result_and_other_seed_other_interval() -> None:
    lines = references(50)
    one, other = damage(lines, 0.2, seed=1), damage(lines, 0.15, seed=2)
    first, again, third = (compare(one, other, lines, trials=100, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert (first.low, first.high) != (third.low, third.high)


def test_unequal_counts_are_an_error_with_the_counts() -> None:
    with pytest.raises(DataError, match="cannot score 1 baseline, 2 system, 2 references"):
        compare(["a"], ["a", "b"], ["a", "b"])
    with pytest.raises(DataError, match="nothing to score: 0 baseline, 0 system, 0 references"):
        compare([], [], [])
    with pytest.raises(ConfigError, match="at least 40 trials, but has 1"):
        compare(["a"], ["a"], ["a"], trials=1)
    with pytest.raises(ConfigError, match="unknown metric 'blue'"):
        compare(["a"], ["a"], ["a"], metric="blue")


def test_bootstrap_sums_equal_summing_the_drawn_rows() -> None:
    rows = np.random.default_rng(0).integers(0, 9, size=(13, 4)).astype(np.float64)
    drawn = np.random.default_rng(8).choice(13, size=(25, 13), replace=True)
    assert (bootstrap_sums(rows, 25, seed=8) == rows[drawn].sum(axis=1)).all()


def test_the_block_size_does_not_change_the_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).integers(0, 9, size=(13, 4)).astype(np.float64)
    whole = bootstrap_sums(rows, 25, seed=8)
    monkeypatch.setattr("heedful.evaluation.resampling.BLOCK", 40)
    assert (bootstrap_sums(rows, 25, seed=8) == whole).all()


def test_swapping_keeps_the_total() -> None:
    generator = np.random.default_rng(0)
    first, second = generator.integers(0, 9, size=(2, 20, 3)).astype(np.float64)
    ones, others = swapped_sums(first, second, 30, seed=1)
    kept = np.random.default_rng(1).integers(2, size=(30, 20), dtype=bool)
    assert (ones == np.where(kept[:, :, None], first, second).sum(axis=1)).all()
    assert (ones + others == (first + second).sum(axis=0)).all()


def test_a_thousand_resamples_of_a_thousand_sentences_take_less_than_a_second() -> None:
    rows = np.random.default_rng(0).integers(1, 30, size=(1000, 10)).astype(np.float64)
    metric = BLEU()
    statistics = Statistics(rows, lambda sums: float(metric._compute_score_from_stats(sums).score), "")
    start = time.process_time()
    values = statistics.values(bootstrap_sums(rows, 1000, seed=1))
    assert time.process_time() - start < 1
    assert values.shape == (1000,)
