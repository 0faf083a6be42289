"""Every search method respects the options of lengths, prefixes, repetition and sampling."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import END, START, batch_of, greedy_search, log_probability, predict, random_tables, run_search
from torch import Tensor

from heedful.search import Hypothesis, SearchConfig, length_limit, search_batch

METHODS: list[dict[str, Any]] = [
    {"method": "greedy"},
    {"method": "beam", "beam": 3, "n_best": 2},
    {"method": "sample", "n_best": 2},
]
SEEDS = st.integers(0, 10**6)


def run(tables: Tensor, config: SearchConfig, prefixes: list[list[int]] | None = None) -> list[list[Hypothesis]]:
    lengths = [0 if prefixes is None else len(prefixes[source]) for source in range(len(tables))]
    limits = [length_limit(config, 1, length) for length in lengths]
    return search_batch(predict, batch_of(tables, limits, prefixes=prefixes), config, start=START, end=END)


def test_length_limit_follows_the_source_within_bounds() -> None:
    config = SearchConfig(min_length=3, max_length=20, max_extra=5)
    assert [length_limit(config, length, 0) for length in (1, 4, 100)] == [6 + 1, 9 + 1, 20 + 1]  # the end token included
    assert length_limit(config, 4, 30) == 30 + 1
    assert [length_limit(SearchConfig(min_length=8, max_extra=0), length, 0) for length in (1, 100)] == [8 + 1, 100 + 1]


def test_a_config_selects_its_method() -> None:
    tables = random_tables(3, vocab=4, limit=4, seed=1)
    assert run(tables, SearchConfig(method="greedy", max_length=3)) == [[h] for h in greedy_search(batch_of(tables, [4] * 3))]
    expected = run_search(batch_of(tables, [4] * 3), beam=3, length_penalty=0.9, n_best=2)
    assert run(tables, SearchConfig(beam=3, n_best=2, length_penalty=0.9, max_length=3)) == expected


@pytest.mark.parametrize("method", METHODS, ids=lambda given: given["method"])
@given(seed=SEEDS, shortest=st.integers(0, 3), longest=st.integers(3, 4))
def test_lengths_stay_within_their_bounds(method: dict[str, Any], seed: int, shortest: int, longest: int) -> None:
    tables = random_tables(2, vocab=4, limit=5, seed=seed)
    results = run(tables, SearchConfig(**method, min_length=shortest, max_length=longest))
    assert all(results)
    assert all(shortest <= len(hypothesis.tokens) <= longest for hypotheses in results for hypothesis in hypotheses)


@pytest.mark.parametrize("method", METHODS, ids=lambda given: given["method"])
@given(seed=SEEDS, length=st.integers(1, 2))
def test_no_n_gram_repeats(method: dict[str, Any], seed: int, length: int) -> None:
    tables = random_tables(2, vocab=4, limit=5, seed=seed)
    for hypotheses in run(tables, SearchConfig(**method, no_repeat=length, max_length=4)):
        assert hypotheses
        for tokens, _, _ in hypotheses:
            grams = [tuple(tokens[i : i + length]) for i in range(len(tokens) - length + 1)]
            assert len(set(grams)) == len(grams)


@pytest.mark.parametrize("method", METHODS, ids=lambda given: given["method"])
@pytest.mark.parametrize("constraint", [{}, {"min_length": 3}, {"no_repeat": 2}], ids=str)
def test_a_prefix_is_kept_and_scored_under_any_constraint(method: dict[str, Any], constraint: dict[str, Any]) -> None:
    tables = random_tables(3, vocab=4, limit=5, seed=3)
    prefixes = [[3, 2], [], [2]]
    results = run(tables, SearchConfig(**method, **constraint, max_length=4), prefixes)
    for table, prefix, hypotheses in zip(tables, prefixes, results, strict=True):
        assert hypotheses
        for hypothesis in hypotheses:
            assert hypothesis.tokens[: len(prefix)] == prefix
            assert hypothesis.log_probability == pytest.approx(log_probability(table, hypothesis.tokens), abs=1e-5)


@pytest.mark.parametrize("method", METHODS, ids=lambda given: given["method"])
def test_a_prefix_may_repeat_n_grams_where_search_may_not(method: dict[str, Any]) -> None:
    tables = random_tables(1, vocab=4, limit=5, seed=4)
    (hypotheses,) = run(tables, SearchConfig(**method, no_repeat=1, max_length=4), [[2, 2]])
    assert hypotheses
    for hypothesis in hypotheses:
        assert hypothesis.tokens[:2] == [2, 2]
        assert hypothesis.log_probability == pytest.approx(log_probability(tables[0], hypothesis.tokens), abs=1e-5)


@pytest.mark.parametrize("method", METHODS, ids=lambda given: given["method"])
def test_a_prefix_longer_than_the_limit_is_kept_and_ended(method: dict[str, Any]) -> None:
    tables = random_tables(1, vocab=3, limit=6, seed=5)
    (hypotheses,) = run(tables, SearchConfig(**method, max_length=2), [[0, 2, 0, 2]])
    assert [hypothesis.tokens for hypothesis in hypotheses] == [[0, 2, 0, 2]] * len(hypotheses)
    assert hypotheses


@pytest.mark.parametrize("method", METHODS, ids=lambda given: given["method"])
def test_constraints_that_ban_every_token_still_give_a_hypothesis(method: dict[str, Any]) -> None:
    """Two words, no repetition, but a minimum of four tokens."""
    tables = random_tables(2, vocab=3, limit=6, seed=6)
    for hypotheses in run(tables, SearchConfig(**method, no_repeat=1, min_length=4, max_length=5)):
        assert hypotheses
        assert all(hypothesis.log_probability > -1e9 for hypothesis in hypotheses)


def test_samples_of_a_source_are_independent_and_reproducible() -> None:
    tables = random_tables(2, vocab=4, limit=5, seed=7)
    config = SearchConfig(method="sample", n_best=30, max_length=4, seed=3)
    results = run(tables, config)
    assert [len(hypotheses) for hypotheses in results] == [30, 30]
    assert all(len({tuple(h.tokens) for h in hypotheses}) > 8 for hypotheses in results)
    assert run(tables, config) == results
    alone = batch_of(tables[1:], [length_limit(config, 1, 0)], [1])
    assert search_batch(predict, alone, config, start=START, end=END) == [results[1]]


def test_hypotheses_do_not_contain_the_end_token() -> None:
    tables = random_tables(3, vocab=4, limit=5, seed=8)
    results = [run(tables, SearchConfig(**method, max_length=4)) for method in METHODS]
    assert all(END not in hypothesis.tokens for of_method in results for hypotheses in of_method for hypothesis in hypotheses)
