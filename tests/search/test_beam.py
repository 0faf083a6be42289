"""Beam search: a beam as wide as the space is exhaustive, a beam of one is greedy, and early stopping loses nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import batch_of, exhaustive, greedy_search, log_probability, predict, random_tables, run_search, table_of

from heedful.nn.decoder_state import States
from heedful.search.hypothesis import PENALTIES

Penalty = tuple[str, float]  # name and alpha of a length penalty
PENALTY_OPTIONS: list[Penalty] = [("wu", 0.6), ("wu", 0.0), ("power", 1.0), ("power", 0.5), ("wu", 3.0)]
TABLES = st.builds(
    random_tables,
    sources=st.integers(1, 3),
    vocab=st.integers(2, 4),
    limit=st.just(4),
    seed=st.integers(0, 10**6),
    spread=st.floats(0.1, 5),
)
SOME_PENALTY = st.sampled_from(PENALTY_OPTIONS)


def function_of(penalty: Penalty) -> Callable[[int], float]:
    return PENALTIES[penalty[0]](penalty[1])


def options(penalty: Penalty) -> dict[str, Any]:
    return {"penalty": penalty[0], "length_penalty": penalty[1]}


@pytest.mark.parametrize("penalty", PENALTY_OPTIONS, ids=str)
def test_a_beam_as_wide_as_the_space_ranks_it_as_exhaustive_search_does(penalty: Penalty) -> None:
    tables, limits = random_tables(3, vocab=4, limit=4, seed=1), [4, 2, 3]
    everything = [exhaustive(table, limit, function_of(penalty)) for table, limit in zip(tables, limits, strict=True)]
    assert [len(hypotheses) for hypotheses in everything] == [1 + 3 + 9 + 27, 1 + 3, 1 + 3 + 9]
    results = run_search(batch_of(tables, limits), beam=40, **options(penalty), n_best=40)
    for hypotheses, expected in zip(results, everything, strict=True):
        assert [h.tokens for h in hypotheses] == [h.tokens for h in expected]
        assert [h.score for h in hypotheses] == pytest.approx([h.score for h in expected], abs=1e-5)
        assert [h.log_probability for h in hypotheses] == pytest.approx([h.log_probability for h in expected], abs=1e-5)


@given(tables=TABLES, penalty=SOME_PENALTY)
def test_the_best_of_a_wide_beam_is_the_best_of_exhaustive_search(tables: torch.Tensor, penalty: Penalty) -> None:
    """With early stopping."""
    for table, (best,) in zip(
        tables, run_search(batch_of(tables, [4] * len(tables)), beam=40, **options(penalty)), strict=True
    ):
        assert best.score == pytest.approx(exhaustive(table, 4, function_of(penalty))[0].score, abs=1e-5)


@settings(max_examples=200)
@given(tables=TABLES, penalty=SOME_PENALTY, beam=st.integers(1, 5), data=st.data())
def test_early_stopping_misses_nothing_better(tables: torch.Tensor, penalty: Penalty, beam: int, data: st.DataObject) -> None:
    """With n_best equal to the beam, search cannot stop early."""
    limits = [data.draw(st.integers(1, 4)) for _ in tables]
    n_best = data.draw(st.integers(1, beam))
    early = run_search(batch_of(tables, limits), beam=beam, **options(penalty), n_best=n_best)
    whole = run_search(batch_of(tables, limits), beam=beam, **options(penalty), n_best=beam)
    for first, complete in zip(early, whole, strict=True):
        assert first
        assert [h.score for h in first] == pytest.approx([h.score for h in complete[:n_best]], abs=1e-6)


def test_search_stops_early() -> None:
    calls = 0
    table = table_of({(): [0.1, 0.8, 0.1], (0,): [1.0, 0.0, 0.0], (2,): [0.0, 0.0, 1.0]}, limit=6)

    def counted(tokens: torch.Tensor, states: States) -> tuple[torch.Tensor, States]:
        nonlocal calls
        calls += 1
        return predict(tokens, states)

    ((best,),) = run_search(batch_of(table, [6]), counted, beam=3, penalty="wu", length_penalty=0.6)
    assert best.tokens == []
    assert calls == 1  # log 0.1 / penalty(6) can never overtake log 0.8


def test_search_continues_while_a_longer_hypothesis_can_still_win_by_its_length() -> None:
    """The empty hypothesis has probability 0.5; the other 0.3, but its three tokens divide the log-probability by more."""
    table = table_of({(): [0.0, 0.5, 0.3, 0.2], (2,): [0.0, 0.0, 1.0, 0.0], (2, 2): [0.0, 1.0, 0.0, 0.0]}, limit=4)
    ((best,),) = run_search(batch_of(table, [4]), beam=2, penalty="power", length_penalty=1.0)
    assert best.tokens == [2, 2]
    ((best,),) = run_search(batch_of(table, [4]), beam=2, penalty="power", length_penalty=0.0)
    assert best.tokens == []


def test_a_beam_of_two_finds_a_better_hypothesis_than_greedy_search() -> None:
    table = table_of({(): [0.6, 0.0, 0.4], (0,): [0.3, 0.4, 0.3], (2,): [0.05, 0.9, 0.05]}, limit=3)
    (greedy,) = greedy_search(batch_of(table, [3]))
    ((best,),) = run_search(batch_of(table, [3]), beam=2, penalty="wu", length_penalty=0.0)
    assert greedy.tokens == [0]
    assert best.tokens == [2]
    assert best.log_probability > greedy.log_probability


@given(tables=TABLES, penalty=SOME_PENALTY)
def test_a_beam_of_one_is_greedy(tables: torch.Tensor, penalty: Penalty) -> None:
    limits = [4, 3, 1][: len(tables)]
    narrow = run_search(batch_of(tables, limits), beam=1, **options(penalty))
    greedy = greedy_search(batch_of(tables, limits))
    assert [best.tokens for (best,) in narrow] == [hypothesis.tokens for hypothesis in greedy]
    assert [best.log_probability for (best,) in narrow] == [hypothesis.log_probability for hypothesis in greedy]


def test_on_average_beam_search_finds_more_probable_hypotheses_than_greedy_search() -> None:
    tables = random_tables(60, vocab=4, limit=4, seed=2)
    wide = run_search(batch_of(tables, [4] * 60), beam=4, penalty="wu", length_penalty=0.0)
    greedy = greedy_search(batch_of(tables, [4] * 60))
    assert sum(best.log_probability for (best,) in wide) > sum(h.log_probability for h in greedy)


@given(tables=TABLES, penalty=SOME_PENALTY, beam=st.integers(2, 6))
def test_hypotheses_are_sorted_distinct_and_scored_by_the_table(tables: torch.Tensor, penalty: Penalty, beam: int) -> None:
    results = run_search(batch_of(tables, [4] * len(tables)), beam=beam, **options(penalty), n_best=beam)
    checked = 0
    for table, hypotheses in zip(tables, results, strict=True):
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
        assert len({tuple(h.tokens) for h in hypotheses}) == len(hypotheses) <= beam
        for tokens, score, total in hypotheses:
            assert total == pytest.approx(log_probability(table, tokens), abs=1e-5)
            assert score == pytest.approx(total / function_of(penalty)(len(tokens) + 1))
            assert len(tokens) < 4
            checked += 1
    assert checked


@given(tables=TABLES, beam=st.integers(1, 5))
def test_a_source_in_a_batch_has_the_hypotheses_it_has_alone(tables: torch.Tensor, beam: int) -> None:
    limits = [2, 4, 3][: len(tables)]
    together = run_search(batch_of(tables, limits), beam=beam, penalty="wu", length_penalty=0.6, n_best=beam)
    for source, limit in enumerate(limits):
        alone = run_search(
            batch_of(tables[source : source + 1], [limit]), beam=beam, penalty="wu", length_penalty=0.6, n_best=beam
        )
        assert alone[0] == together[source]


def test_with_a_limit_of_one_token_only_the_end_is_generated() -> None:
    tables = random_tables(1, vocab=3, limit=1, seed=3)
    ((only,),) = run_search(batch_of(tables, [1]), beam=4, penalty="wu", length_penalty=0.6, n_best=4)
    assert only.tokens == []
    assert only.log_probability == pytest.approx(log_probability(tables[0], []))
