"""Beam search: as wide as the space it ranks all of it, as narrow as one it is greedy, and stopping early loses nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import exhaustive, find, group, log_probability, predict, random_tables, straight, table_of

from heedful.nn.decoder_state import States
from heedful.search.hypothesis import PENALTIES

Judge = tuple[str, float]  # name and alpha of a length penalty
JUDGES: list[Judge] = [("wu", 0.6), ("wu", 0.0), ("power", 1.0), ("power", 0.5), ("wu", 3.0)]
TABLES = st.builds(
    random_tables,
    sources=st.integers(1, 3),
    vocab=st.integers(2, 4),
    limit=st.just(4),
    seed=st.integers(0, 10**6),
    spread=st.floats(0.1, 5),
)
SOME_JUDGE = st.sampled_from(JUDGES)


def options(judge: Judge) -> dict[str, Any]:
    return {"penalty": judge[0], "length_penalty": judge[1]}


@pytest.mark.parametrize("judge", JUDGES, ids=str)
def test_a_beam_as_wide_as_the_space_ranks_it_as_exhaustive_search_does(judge: Judge) -> None:
    tables, limits = random_tables(3, vocab=4, limit=4, seed=1), [4, 2, 3]
    everything = [exhaustive(table, limit, PENALTIES[judge[0]](judge[1])) for table, limit in zip(tables, limits, strict=True)]
    assert [len(hypotheses) for hypotheses in everything] == [1 + 3 + 9 + 27, 1 + 3, 1 + 3 + 9]
    answers = find(group(tables, limits), beam=40, **options(judge), n_best=40)
    for found, expected in zip(answers, everything, strict=True):
        assert [h.tokens for h in found] == [h.tokens for h in expected]
        assert [h.score for h in found] == pytest.approx([h.score for h in expected], abs=1e-5)
        assert [h.log_probability for h in found] == pytest.approx([h.log_probability for h in expected], abs=1e-5)


@given(tables=TABLES, judge=SOME_JUDGE)
def test_the_best_of_a_wide_beam_is_the_best_there_is(tables: torch.Tensor, judge: Judge) -> None:
    """Now with an early stop."""
    for table, (best,) in zip(tables, find(group(tables, [4] * len(tables)), beam=40, **options(judge)), strict=True):
        assert best.score == pytest.approx(exhaustive(table, 4, PENALTIES[judge[0]](judge[1]))[0].score, abs=1e-5)


@settings(max_examples=200)
@given(tables=TABLES, judge=SOME_JUDGE, beam=st.integers(1, 5), data=st.data())
def test_stopping_early_misses_nothing(tables: torch.Tensor, judge: Judge, beam: int, data: st.DataObject) -> None:
    """Asked for as many as the beam is wide, a search cannot stop before it has them."""
    limits = [data.draw(st.integers(1, 4)) for _ in tables]
    n_best = data.draw(st.integers(1, beam))
    early = find(group(tables, limits), beam=beam, **options(judge), n_best=n_best)
    whole = find(group(tables, limits), beam=beam, **options(judge), n_best=beam)
    for some, every in zip(early, whole, strict=True):
        assert some
        assert [h.score for h in some] == pytest.approx([h.score for h in every[:n_best]], abs=1e-6)


def test_search_does_stop_early() -> None:
    calls = 0
    table = table_of({(): [0.1, 0.8, 0.1], (0,): [1.0, 0.0, 0.0], (2,): [0.0, 0.0, 1.0]}, limit=6)

    def counted(tokens: torch.Tensor, states: States) -> tuple[torch.Tensor, States]:
        nonlocal calls
        calls += 1
        return predict(tokens, states)

    ((best,),) = find(group(table, [6]), counted, beam=3, penalty="wu", length_penalty=0.6)
    assert best.tokens == []
    assert calls == 1  # log 0.1 / penalty(6) can never overtake log 0.8


def test_a_long_hypothesis_is_waited_for_when_its_length_may_still_save_it() -> None:
    """Ending at once has 0.5; the other way has 0.3 in all, but three tokens divide it by more."""
    table = table_of({(): [0.0, 0.5, 0.3, 0.2], (2,): [0.0, 0.0, 1.0, 0.0], (2, 2): [0.0, 1.0, 0.0, 0.0]}, limit=4)
    ((best,),) = find(group(table, [4]), beam=2, penalty="power", length_penalty=1.0)
    assert best.tokens == [2, 2]
    ((best,),) = find(group(table, [4]), beam=2, penalty="power", length_penalty=0.0)
    assert best.tokens == []


def test_a_beam_of_two_escapes_the_trap_of_greedy_search() -> None:
    table = table_of({(): [0.6, 0.0, 0.4], (0,): [0.3, 0.4, 0.3], (2,): [0.05, 0.9, 0.05]}, limit=3)
    (greedy,) = straight(group(table, [3]))
    ((best,),) = find(group(table, [3]), beam=2, penalty="wu", length_penalty=0.0)
    assert greedy.tokens == [0]
    assert best.tokens == [2]
    assert best.log_probability > greedy.log_probability


@given(tables=TABLES, judge=SOME_JUDGE)
def test_a_beam_of_one_is_greedy(tables: torch.Tensor, judge: Judge) -> None:
    limits = [4, 3, 1][: len(tables)]
    narrow = find(group(tables, limits), beam=1, **options(judge))
    greedy = straight(group(tables, limits))
    assert [best.tokens for (best,) in narrow] == [hypothesis.tokens for hypothesis in greedy]
    assert [best.log_probability for (best,) in narrow] == [hypothesis.log_probability for hypothesis in greedy]


def test_on_average_a_beam_finds_what_is_at_least_as_likely_as_greedy_search_does() -> None:
    tables = random_tables(60, vocab=4, limit=4, seed=2)
    wide = find(group(tables, [4] * 60), beam=4, penalty="wu", length_penalty=0.0)
    greedy = straight(group(tables, [4] * 60))
    assert sum(best.log_probability for (best,) in wide) > sum(h.log_probability for h in greedy)


@given(tables=TABLES, judge=SOME_JUDGE, beam=st.integers(2, 6))
def test_hypotheses_are_sorted_distinct_and_scored_as_the_table_says(tables: torch.Tensor, judge: Judge, beam: int) -> None:
    answers = find(group(tables, [4] * len(tables)), beam=beam, **options(judge), n_best=beam)
    checked = 0
    for table, found in zip(tables, answers, strict=True):
        assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
        assert len({tuple(h.tokens) for h in found}) == len(found) <= beam
        for tokens, score, total in found:
            assert total == pytest.approx(log_probability(table, tokens), abs=1e-5)
            assert score == pytest.approx(total / PENALTIES[judge[0]](judge[1])(len(tokens) + 1))
            assert len(tokens) < 4
            checked += 1
    assert checked


@given(tables=TABLES, beam=st.integers(1, 5))
def test_a_source_is_answered_as_if_it_were_alone(tables: torch.Tensor, beam: int) -> None:
    limits = [2, 4, 3][: len(tables)]
    together = find(group(tables, limits), beam=beam, penalty="wu", length_penalty=0.6, n_best=beam)
    for source, limit in enumerate(limits):
        alone = find(group(tables[source : source + 1], [limit]), beam=beam, penalty="wu", length_penalty=0.6, n_best=beam)
        assert alone[0] == together[source]


def test_where_only_the_end_fits_only_the_end_is_said() -> None:
    tables = random_tables(1, vocab=3, limit=1, seed=3)
    ((only,),) = find(group(tables, [1]), beam=4, penalty="wu", length_penalty=0.6, n_best=4)
    assert only.tokens == []
    assert only.log_probability == pytest.approx(log_probability(tables[0], []))
