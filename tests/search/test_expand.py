"""Greedy search takes the most probable token; sampling follows the model's probabilities."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tables import END, batch_of, greedy_search, log_probability, number, random_tables, run_search, table_of

from heedful.nn.decoder_state import State
from heedful.search import Hypothesis, SourceBatch
from heedful.search.expand import draw_tokens, draw_truncated

HOT_DOGS, PANCAKES = 0, 2
I_LIKE_TO_EAT = table_of({(): [0.8, 0.0, 0.2]}, limit=2)


def sample(
    table: torch.Tensor,
    limits: list[int],
    source_ids: list[int] | None = None,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
) -> list[Hypothesis]:
    options: dict[str, Any] = {"method": "sample", "temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    return [best for (best,) in run_search(batch_of(table, limits, source_ids), **options)]


def test_greedy_search_takes_the_most_probable_token_at_every_step() -> None:
    tables = random_tables(5, vocab=4, limit=4, seed=1)
    for table, hypothesis in zip(tables, greedy_search(batch_of(tables, [4, 3, 2, 1, 4])), strict=True):
        path = [*hypothesis.tokens, END]
        for time, token in enumerate(path[:-1]):
            assert token == int(table[number(path[:time], 4)].argmax())
        assert hypothesis.score == hypothesis.log_probability == pytest.approx(log_probability(table, hypothesis.tokens))


def test_no_hypothesis_is_longer_than_its_limit() -> None:
    tables = random_tables(5, vocab=4, limit=4, seed=1)
    tables[..., END] = -20.0
    assert [len(h.tokens) for h in greedy_search(batch_of(tables, [4, 3, 2, 1, 4]))] == [3, 2, 1, 0, 3]
    assert [len(h.tokens) for h in sample(tables, [4, 3, 2, 1, 4])] == [3, 2, 1, 0, 3]


@pytest.mark.parametrize(("temperature", "expected"), [(1.0, 0.8), (0.5, 0.9412), (2.0, 0.6667)])
def test_i_like_to_eat_hot_dogs(temperature: float, expected: float) -> None:
    count = 10_000
    samples = sample(I_LIKE_TO_EAT.expand(count, -1, -1), [2] * count, temperature=temperature)
    hot_dogs = sum(hypothesis.tokens == [HOT_DOGS] for hypothesis in samples)
    assert sum(hypothesis.tokens == [PANCAKES] for hypothesis in samples) == count - hot_dogs
    assert abs(hot_dogs / count - expected) < 3 * math.sqrt(expected * (1 - expected) / count)  # 0.012 where it is 0.8


def test_the_log_probability_of_a_sample_does_not_depend_on_temperature() -> None:
    tables = random_tables(8, vocab=4, limit=4, seed=2)
    samples = sample(tables, [4] * 8, temperature=2.0, top_k=3, top_p=0.9)
    assert sum(len(hypothesis.tokens) for hypothesis in samples) > 4
    for table, hypothesis in zip(tables, samples, strict=True):
        assert hypothesis.log_probability == pytest.approx(log_probability(table, hypothesis.tokens), abs=1e-5)


@pytest.mark.parametrize("changes", [{"temperature": 0.0}, {"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-3}], ids=str)
def test_sampling_from_the_most_probable_token_only_is_greedy(changes: dict[str, Any]) -> None:
    tables = random_tables(20, vocab=4, limit=4, seed=3)
    assert [h.tokens for h in sample(tables, [4] * 20, **changes)] == [
        h.tokens for h in greedy_search(batch_of(tables, [4] * 20))
    ]


def test_samples_are_reproducible_and_differ_between_seeds() -> None:
    tables = random_tables(20, vocab=4, limit=4, seed=4)
    assert sample(tables, [4] * 20, seed=5) == sample(tables, [4] * 20, seed=5)
    assert sample(tables, [4] * 20, seed=5) != sample(tables, [4] * 20, seed=6)


def test_samples_do_not_depend_on_the_other_sources_of_the_batch() -> None:
    tables = random_tables(20, vocab=4, limit=4, seed=5)
    limits = [2, 3, 4, 4] * 5
    together = sample(tables, limits)
    order = torch.randperm(20).tolist()
    shuffled = sample(tables[order], [limits[source_id] for source_id in order], order)
    assert [shuffled[order.index(source_id)] for source_id in range(20)] == together
    assert [
        sample(tables[source_id : source_id + 1], [limits[source_id]], [source_id])[0] for source_id in range(20)
    ] == together


def test_equal_sources_have_independent_samples() -> None:
    tables = random_tables(1, vocab=4, limit=4, seed=6).expand(50, -1, -1)
    assert len({tuple(hypothesis.tokens) for hypothesis in sample(tables, [4] * 50)}) > 5


KEYS = [((0, 1_000_003), (1, 0)), ((4296, 0), (0, 4296 * 1_000_003 - 2**32)), ((0, 1 << 40), (0, 0)), ((0, 1), (1, 0))]


@pytest.mark.parametrize(("first", "second"), KEYS, ids=str)
def test_no_two_pairs_of_seed_and_source_share_random_numbers(first: tuple[int, int], second: tuple[int, int]) -> None:
    def uniform(tokens: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        return torch.zeros(len(tokens), 100), state

    def sampled_tokens(seed: int, source_id: int) -> list[int]:
        batch = SourceBatch(State(None, None), torch.tensor([20]), [source_id], [[]])
        return run_search(batch, uniform, method="sample", seed=seed)[0][0].tokens

    assert len(sampled_tokens(*first)) > 3
    assert sampled_tokens(*first) != sampled_tokens(*second)


@given(
    weights=st.lists(st.integers(0, 20), min_size=2, max_size=7).filter(any),
    uniform=st.integers(0, 2**24 - 1).map(lambda n: n / 2**24),
    top_k=st.integers(0, 7),
    top_p=st.floats(0.05, 1.0),
)
def test_a_draw_inverts_the_truncated_distribution(weights: list[int], uniform: float, top_k: int, top_p: float) -> None:
    """Add up the tokens from the most probable, as far as `top_k` and `top_p` allow, until the random number is reached."""
    total = sum(weights)
    cuts = top_k > 0 or top_p < 1  # without truncation, tokens are not sorted
    order = sorted(range(len(weights)), key=lambda token: -weights[token] if cuts else 0)
    kept = [
        token
        for rank, token in enumerate(order)
        if (top_k == 0 or rank < top_k) and sum(weights[t] for t in order[:rank]) / total < top_p
    ]
    scores = torch.tensor([weights], dtype=torch.float32).log()
    given = torch.tensor([uniform])
    token = int(
        draw_truncated(scores, given, torch.tensor([[top_k]]), torch.tensor([[top_p]])) if cuts else draw_tokens(scores, given)
    )
    share, below = sum(weights[t] for t in kept), sum(weights[t] for t in order[: order.index(token)])
    assert weights[token] > 0
    slack = 1e-5  # of float32; on a boundary, either token is right
    assert token in kept or below / total == pytest.approx(top_p, abs=slack)
    if top_p == 1.0 or token in kept:
        assert below / share - slack <= uniform + slack * (share != total)
        assert uniform <= (below + weights[token]) / share + slack or kept[-1] == token
