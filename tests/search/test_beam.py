"""Beam search: as wide as the space it ranks all of it, as narrow as one it is greedy, and stopping early loses nothing."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import exhaustive, log_probability, query, random_tables, table_of

from heedful.nn.rows import States
from heedful.search import beam_search, greedy
from heedful.search.hypothesis import Penalty, power, wu

PENALTIES = {"wu 0.6": wu(0.6), "wu 0": wu(0.0), "power 1": power(1.0), "power 0.5": power(0.5), "wu 3": wu(3.0)}
TABLES = st.builds(
    random_tables,
    sources=st.integers(1, 3),
    vocab=st.integers(2, 4),
    limit=st.just(4),
    seed=st.integers(0, 10**6),
    spread=st.floats(0.1, 5),
)
SOME_PENALTY = st.sampled_from(list(PENALTIES.values()))


@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES)
def test_a_beam_as_wide_as_the_space_ranks_it_as_exhaustive_search_does(penalty: Penalty) -> None:
    tables, limits = random_tables(3, vocab=4, limit=4, seed=1), [4, 2, 3]
    everything = [exhaustive(table, limit, penalty) for table, limit in zip(tables, limits, strict=True)]
    assert [len(hypotheses) for hypotheses in everything] == [1 + 3 + 9 + 27, 1 + 3, 1 + 3 + 9]
    answers = beam_search(query(tables, limits), beam=40, penalty=penalty, n_best=40)
    for found, expected in zip(answers, everything, strict=True):
        assert [h.tokens for h in found] == [h.tokens for h in expected]
        assert [h.score for h in found] == pytest.approx([h.score for h in expected], abs=1e-5)
        assert [h.log_probability for h in found] == pytest.approx([h.log_probability for h in expected], abs=1e-5)


@given(tables=TABLES, penalty=SOME_PENALTY)
def test_the_best_of_a_wide_beam_is_the_best_there_is(tables: torch.Tensor, penalty: Penalty) -> None:
    """Now with an early stop."""
    for table, (best,) in zip(tables, beam_search(query(tables, [4] * len(tables)), beam=40, penalty=penalty), strict=True):
        assert best.score == pytest.approx(exhaustive(table, 4, penalty)[0].score, abs=1e-5)


@settings(max_examples=200)
@given(tables=TABLES, penalty=SOME_PENALTY, beam=st.integers(1, 5), data=st.data())
def test_stopping_early_misses_nothing(tables: torch.Tensor, penalty: Penalty, beam: int, data: st.DataObject) -> None:
    """Asked for as many as the beam is wide, a search cannot stop before it has them."""
    limits = [data.draw(st.integers(1, 4)) for _ in tables]
    n_best = data.draw(st.integers(1, beam))
    early = beam_search(query(tables, limits), beam=beam, penalty=penalty, n_best=n_best)
    whole = beam_search(query(tables, limits), beam=beam, penalty=penalty, n_best=beam)
    for some, every in zip(early, whole, strict=True):
        assert some
        assert [h.score for h in some] == pytest.approx([h.score for h in every[:n_best]], abs=1e-6)


def test_search_does_stop_early() -> None:
    calls = 0
    table = table_of({(): [0.1, 0.8, 0.1], (0,): [1.0, 0.0, 0.0], (2,): [0.0, 0.0, 1.0]}, limit=6)
    asked = query(table, [6])

    def counted(tokens: torch.Tensor, states: States) -> tuple[torch.Tensor, States]:
        nonlocal calls
        calls += 1
        return asked.predict(tokens, states)

    ((best,),) = beam_search(asked._replace(predict=counted), beam=3, penalty=wu(0.6))
    assert best.tokens == []
    assert calls == 1  # log 0.1 / penalty(6) can never overtake log 0.8


def test_a_long_hypothesis_is_waited_for_when_its_length_may_still_save_it() -> None:
    """Ending at once has 0.5; the other way has 0.3 in all, but three tokens divide it by more."""
    table = table_of({(): [0.0, 0.5, 0.3, 0.2], (2,): [0.0, 0.0, 1.0, 0.0], (2, 2): [0.0, 1.0, 0.0, 0.0]}, limit=4)
    ((best,),) = beam_search(query(table, [4]), beam=2, penalty=power(1.0))
    assert best.tokens == [2, 2]
    ((best,),) = beam_search(query(table, [4]), beam=2, penalty=power(0.0))
    assert best.tokens == []


def test_a_beam_of_two_escapes_the_trap_of_greedy_search() -> None:
    table = table_of({(): [0.6, 0.0, 0.4], (0,): [0.3, 0.4, 0.3], (2,): [0.05, 0.9, 0.05]}, limit=3)
    (straight,) = greedy(query(table, [3]))
    ((best,),) = beam_search(query(table, [3]), beam=2, penalty=wu(0.0))
    assert straight.tokens == [0]
    assert best.tokens == [2]
    assert best.log_probability > straight.log_probability


@given(tables=TABLES, penalty=SOME_PENALTY)
def test_a_beam_of_one_is_greedy(tables: torch.Tensor, penalty: Penalty) -> None:
    limits = [4, 3, 1][: len(tables)]
    narrow = beam_search(query(tables, limits), beam=1, penalty=penalty)
    straight = greedy(query(tables, limits))
    assert [best.tokens for (best,) in narrow] == [hypothesis.tokens for hypothesis in straight]
    assert [best.log_probability for (best,) in narrow] == [hypothesis.log_probability for hypothesis in straight]


def test_on_average_a_beam_finds_what_is_at_least_as_likely_as_greedy_search_does() -> None:
    tables = random_tables(60, vocab=4, limit=4, seed=2)
    wide = beam_search(query(tables, [4] * 60), beam=4, penalty=wu(0.0))
    straight = greedy(query(tables, [4] * 60))
    assert sum(best.log_probability for (best,) in wide) > sum(h.log_probability for h in straight)


@given(tables=TABLES, penalty=SOME_PENALTY, beam=st.integers(2, 6))
def test_hypotheses_are_sorted_distinct_and_scored_as_the_table_says(tables: torch.Tensor, penalty: Penalty, beam: int) -> None:
    answers = beam_search(query(tables, [4] * len(tables)), beam=beam, penalty=penalty, n_best=beam)
    checked = 0
    for table, found in zip(tables, answers, strict=True):
        assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
        assert len({tuple(h.tokens) for h in found}) == len(found) <= beam
        for tokens, score, total in found:
            assert total == pytest.approx(log_probability(table, tokens), abs=1e-5)
            assert score == pytest.approx(total / penalty(len(tokens) + 1))
            assert len(tokens) < 4
            checked += 1
    assert checked


@given(tables=TABLES, beam=st.integers(1, 5))
def test_a_source_is_answered_as_if_it_were_alone(tables: torch.Tensor, beam: int) -> None:
    limits = [2, 4, 3][: len(tables)]
    together = beam_search(query(tables, limits), beam=beam, penalty=wu(0.6), n_best=beam)
    for source, limit in enumerate(limits):
        alone = beam_search(query(tables[source : source + 1], [limit]), beam=beam, penalty=wu(0.6), n_best=beam)
        assert alone[0] == together[source]


def test_where_only_the_end_fits_only_the_end_is_said() -> None:
    tables = random_tables(1, vocab=3, limit=1, seed=3)
    ((only,),) = beam_search(query(tables, [1]), beam=4, penalty=wu(0.6), n_best=4)
    assert only.tokens == []
    assert only.log_probability == pytest.approx(log_probability(tables[0], []))
