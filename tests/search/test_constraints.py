"""What may come next: ensembles average probabilities, and constraints allow what they should at the model's own price."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tables import START, exhaustive, find, group, log_probability, predict, random_tables
from torch import Tensor
from torch.testing import assert_close

from heedful.nn.decoder_state import State
from heedful.search import Group, Hypothesis, ensemble
from heedful.search.hypothesis import wu

LIMIT = 4
SEEDS = st.integers(0, 10**6)


def ranked(tables: Tensor, *, shortest: int = 0, no_repeat: int = 0) -> list[list[Hypothesis]]:
    """All that the constraints allow, by a beam as wide as the space."""
    asked = group(tables, [LIMIT] * len(tables))
    return find(asked, beam=40, n_best=40, min_length=shortest, no_repeat=no_repeat)


def repeats(tokens: list[int], length: int) -> bool:
    grams = [tuple(tokens[i : i + length]) for i in range(len(tokens) - length + 1)]
    return len(set(grams)) < len(grams)


@given(seed=SEEDS, shortest=st.integers(0, 3), no_repeat=st.integers(0, 2))
def test_constraints_leave_exactly_what_they_allow_and_do_not_touch_its_score(seed: int, shortest: int, no_repeat: int) -> None:
    tables = random_tables(2, vocab=4, limit=LIMIT, seed=seed)
    answers = ranked(tables.clone(), shortest=shortest, no_repeat=no_repeat)
    for table, found in zip(tables, answers, strict=True):
        allowed = [
            hypothesis
            for hypothesis in exhaustive(table, LIMIT, wu(0.6))
            if len(hypothesis.tokens) >= shortest and not (no_repeat and repeats(hypothesis.tokens, no_repeat))
        ]
        assert {tuple(h.tokens) for h in found} == {tuple(h.tokens) for h in allowed}
        assert [h.score for h in found] == pytest.approx([h.score for h in allowed], abs=1e-5)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_no_n_gram_comes_twice_in_a_long_path(length: int) -> None:
    """A model that would say 0 0 0 … or 0 2 0 2 … for ever."""
    wishes = torch.tensor([0.5, 0.01, 0.3, 0.14, 0.05]).log()

    def stubborn(tokens: Tensor, state: State) -> tuple[Tensor, State]:
        return wishes.expand(len(tokens), -1), state

    asked = Group(State(None, None), torch.tensor([4 * length + 1]), [0], [[]])
    ((said,),) = find(asked, stubborn, method="greedy", no_repeat=length)
    assert len(said.tokens) == 4 * length
    assert not repeats(said.tokens, length)
    for time in range(len(said.tokens)):  # and each token is the likeliest that was allowed
        better = [word for word in (0, 2, 3, 4) if wishes[word] > wishes[said.tokens[time]]]
        assert all(repeats([*said.tokens[:time], word], length) for word in better)


@given(seed=SEEDS, data=st.data())
def test_a_forced_prefix_is_kept_and_paid_for(seed: int, data: st.DataObject) -> None:
    tables = random_tables(3, vocab=4, limit=LIMIT, seed=seed)
    words = st.lists(st.sampled_from([0, 2, 3]), max_size=LIMIT - 1)
    prefixes = [data.draw(words) for _ in range(3)]
    answers = find(group(tables, [LIMIT] * 3, prefixes=prefixes), beam=40, n_best=40)
    for table, prefix, found in zip(tables, prefixes, answers, strict=True):
        expected = [h for h in exhaustive(table, LIMIT, wu(0.6)) if h.tokens[: len(prefix)] == prefix]
        assert expected
        assert {tuple(h.tokens) for h in found} == {tuple(h.tokens) for h in expected}
        assert [h.score for h in found] == pytest.approx([h.score for h in expected], abs=1e-5)


def test_an_ensemble_means_its_members_probabilities() -> None:
    first, second = random_tables(2, vocab=4, limit=LIMIT, seed=1), random_tables(2, vocab=4, limit=LIMIT, seed=2)
    together = ensemble([predict, predict])
    scores, _ = together(torch.full((2, 1), START), tuple(group(table, [1, 1]).states for table in (first, second)))
    assert_close(scores.exp(), (first[:, 0].exp() + second[:, 0].exp()) / 2)


def test_an_ensemble_searches_as_the_mean_of_its_tables_would() -> None:
    """For tables the mean of the members is again a table."""
    members = [random_tables(3, vocab=4, limit=LIMIT, seed=seed) for seed in (1, 2, 3)]
    mean = torch.stack([member.exp() for member in members]).mean(0).log()
    asked = group(mean, [4, 3, 4])
    expected = find(asked, beam=3, n_best=3)
    states = tuple(group(member, [4, 3, 4]).states for member in members)
    found = find(asked._replace(states=states), ensemble([predict] * 3), beam=3, n_best=3)
    for ours, theirs in zip(found, expected, strict=True):
        assert [h.tokens for h in ours] == [h.tokens for h in theirs]
        assert [h.score for h in ours] == pytest.approx([h.score for h in theirs], abs=1e-5)


def test_constraints_hold_together_and_for_ensembles() -> None:
    tables = random_tables(2, vocab=4, limit=LIMIT, seed=8)
    asked = group(tables, [LIMIT] * 2, prefixes=[[3], []])
    both = ensemble([predict, predict])
    answers = find(asked._replace(states=(asked.states, asked.states)), both, beam=3, n_best=3, min_length=2, no_repeat=1)
    for table, prefix, found in zip(tables, [[3], []], answers, strict=True):
        assert found
        for hypothesis in found:
            assert hypothesis.tokens[: len(prefix)] == prefix
            assert len(hypothesis.tokens) >= 2
            assert not any(a == b for a, b in pairwise(hypothesis.tokens))
            assert hypothesis.log_probability == pytest.approx(log_probability(table, hypothesis.tokens), abs=1e-5)
