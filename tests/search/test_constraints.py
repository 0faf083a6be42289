"""Ensembles average probabilities, and constraints ban exactly what they should without changing scores."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tables import START, batch_of, exhaustive, log_probability, predict, random_tables, run_search
from torch import Tensor
from torch.testing import assert_close

from heedful.nn.decoder_state import State
from heedful.search import Hypothesis, SourceBatch, ensemble
from heedful.search.hypothesis import wu

LIMIT = 4
SEEDS = st.integers(0, 10**6)


def ranked(tables: Tensor, *, shortest: int = 0, no_repeat: int = 0) -> list[list[Hypothesis]]:
    """All hypotheses that the constraints allow, by a beam as wide as the space."""
    batch = batch_of(tables, [LIMIT] * len(tables))
    return run_search(batch, beam=40, n_best=40, min_length=shortest, no_repeat=no_repeat)


def repeats(tokens: list[int], length: int) -> bool:
    grams = [tuple(tokens[i : i + length]) for i in range(len(tokens) - length + 1)]
    return len(set(grams)) < len(grams)


@given(seed=SEEDS, shortest=st.integers(0, 3), no_repeat=st.integers(0, 2))
def test_constraints_remove_exactly_the_banned_hypotheses_and_change_no_score(seed: int, shortest: int, no_repeat: int) -> None:
    tables = random_tables(2, vocab=4, limit=LIMIT, seed=seed)
    results = ranked(tables.clone(), shortest=shortest, no_repeat=no_repeat)
    for table, hypotheses in zip(tables, results, strict=True):
        allowed = [
            hypothesis
            for hypothesis in exhaustive(table, LIMIT, wu(0.6))
            if len(hypothesis.tokens) >= shortest and not (no_repeat and repeats(hypothesis.tokens, no_repeat))
        ]
        assert {tuple(h.tokens) for h in hypotheses} == {tuple(h.tokens) for h in allowed}
        assert [h.score for h in hypotheses] == pytest.approx([h.score for h in allowed], abs=1e-5)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_no_n_gram_repeats_in_a_long_hypothesis(length: int) -> None:
    """A model that would generate 0 0 0 … or 0 2 0 2 … forever."""
    logits = torch.tensor([0.5, 0.01, 0.3, 0.14, 0.05]).log()

    def constant(tokens: Tensor, state: State) -> tuple[Tensor, State]:
        return logits.expand(len(tokens), -1), state

    batch = SourceBatch(State(None, None), torch.tensor([4 * length + 1]), [0], [[]])
    ((hypothesis,),) = run_search(batch, constant, method="greedy", no_repeat=length)
    assert len(hypothesis.tokens) == 4 * length
    assert not repeats(hypothesis.tokens, length)
    for time in range(len(hypothesis.tokens)):  # and each token is the most probable of those allowed
        better = [word for word in (0, 2, 3, 4) if logits[word] > logits[hypothesis.tokens[time]]]
        assert all(repeats([*hypothesis.tokens[:time], word], length) for word in better)


@given(seed=SEEDS, data=st.data())
def test_a_forced_prefix_is_kept_and_counted_in_the_score(seed: int, data: st.DataObject) -> None:
    tables = random_tables(3, vocab=4, limit=LIMIT, seed=seed)
    words = st.lists(st.sampled_from([0, 2, 3]), max_size=LIMIT - 1)
    prefixes = [data.draw(words) for _ in range(3)]
    results = run_search(batch_of(tables, [LIMIT] * 3, prefixes=prefixes), beam=40, n_best=40)
    for table, prefix, hypotheses in zip(tables, prefixes, results, strict=True):
        expected = [h for h in exhaustive(table, LIMIT, wu(0.6)) if h.tokens[: len(prefix)] == prefix]
        assert expected
        assert {tuple(h.tokens) for h in hypotheses} == {tuple(h.tokens) for h in expected}
        assert [h.score for h in hypotheses] == pytest.approx([h.score for h in expected], abs=1e-5)


def test_an_ensemble_predicts_the_mean_of_its_members_probabilities() -> None:
    first, second = random_tables(2, vocab=4, limit=LIMIT, seed=1), random_tables(2, vocab=4, limit=LIMIT, seed=2)
    both = ensemble([predict, predict])
    scores, _ = both(torch.full((2, 1), START), tuple(batch_of(table, [1, 1]).states for table in (first, second)))
    assert_close(scores.exp(), (first[:, 0].exp() + second[:, 0].exp()) / 2)


def test_an_ensemble_of_tables_searches_like_their_mean() -> None:
    """The mean of tables is a table."""
    members = [random_tables(3, vocab=4, limit=LIMIT, seed=seed) for seed in (1, 2, 3)]
    mean = torch.stack([member.exp() for member in members]).mean(0).log()
    batch = batch_of(mean, [4, 3, 4])
    expected = run_search(batch, beam=3, n_best=3)
    states = tuple(batch_of(member, [4, 3, 4]).states for member in members)
    results = run_search(batch._replace(states=states), ensemble([predict] * 3), beam=3, n_best=3)
    for of_members, of_mean in zip(results, expected, strict=True):
        assert [h.tokens for h in of_members] == [h.tokens for h in of_mean]
        assert [h.score for h in of_members] == pytest.approx([h.score for h in of_mean], abs=1e-5)


def test_all_constraints_hold_at_once_and_for_ensembles() -> None:
    tables = random_tables(2, vocab=4, limit=LIMIT, seed=8)
    batch = batch_of(tables, [LIMIT] * 2, prefixes=[[3], []])
    both = ensemble([predict, predict])
    results = run_search(batch._replace(states=(batch.states, batch.states)), both, beam=3, n_best=3, min_length=2, no_repeat=1)
    for table, prefix, hypotheses in zip(tables, [[3], []], results, strict=True):
        assert hypotheses
        for hypothesis in hypotheses:
            assert hypothesis.tokens[: len(prefix)] == prefix
            assert len(hypothesis.tokens) >= 2
            assert not any(a == b for a, b in pairwise(hypothesis.tokens))
            assert hypothesis.log_probability == pytest.approx(log_probability(table, hypothesis.tokens), abs=1e-5)
