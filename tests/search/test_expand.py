"""Following one path: greedy takes the likeliest token; sampling draws by the model's probabilities, and only by them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tables import END, find, group, log_probability, number, random_tables, straight, table_of

from heedful.nn.decoder_state import State
from heedful.search import Group, Hypothesis
from heedful.search.expand import draw_tokens

HOT_DOGS, PANCAKES = 0, 2
I_LIKE_TO_EAT = table_of({(): [0.8, 0.0, 0.2]}, limit=2)


def drawn(
    table: torch.Tensor,
    limits: list[int],
    names: list[int] | None = None,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
) -> list[Hypothesis]:
    options: dict[str, Any] = {"method": "sample", "temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    return [best for (best,) in find(group(table, limits, names), **options)]


def test_greedy_takes_the_likeliest_token_at_every_step() -> None:
    tables = random_tables(5, vocab=4, limit=4, seed=1)
    for table, hypothesis in zip(tables, straight(group(tables, [4, 3, 2, 1, 4])), strict=True):
        said = [*hypothesis.tokens, END]
        for time, token in enumerate(said[:-1]):
            assert token == int(table[number(said[:time], 4)].argmax())
        assert hypothesis.score == hypothesis.log_probability == pytest.approx(log_probability(table, hypothesis.tokens))


def test_no_hypothesis_is_longer_than_its_limit() -> None:
    tables = random_tables(5, vocab=4, limit=4, seed=1)
    tables[..., END] = -20.0
    assert [len(h.tokens) for h in straight(group(tables, [4, 3, 2, 1, 4]))] == [3, 2, 1, 0, 3]
    assert [len(h.tokens) for h in drawn(tables, [4, 3, 2, 1, 4])] == [3, 2, 1, 0, 3]


@pytest.mark.parametrize(("temperature", "expected"), [(1.0, 0.8), (0.5, 0.9412), (2.0, 0.6667)])
def test_i_like_to_eat_hot_dogs(temperature: float, expected: float) -> None:
    count = 10_000
    said = drawn(I_LIKE_TO_EAT.expand(count, -1, -1), [2] * count, temperature=temperature)
    hot_dogs = sum(hypothesis.tokens == [HOT_DOGS] for hypothesis in said)
    assert sum(hypothesis.tokens == [PANCAKES] for hypothesis in said) == count - hot_dogs
    assert abs(hot_dogs / count - expected) < 3 * math.sqrt(expected * (1 - expected) / count)  # 0.012 where it is 0.8


def test_a_sample_reports_the_probability_that_the_model_gives_it_at_any_temperature() -> None:
    tables = random_tables(8, vocab=4, limit=4, seed=2)
    said = drawn(tables, [4] * 8, temperature=2.0, top_k=3, top_p=0.9)
    assert sum(len(hypothesis.tokens) for hypothesis in said) > 4
    for table, hypothesis in zip(tables, said, strict=True):
        assert hypothesis.log_probability == pytest.approx(log_probability(table, hypothesis.tokens), abs=1e-5)


@pytest.mark.parametrize("changes", [{"temperature": 0.0}, {"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-3}], ids=str)
def test_cut_to_the_likeliest_token_sampling_is_greedy(changes: dict[str, Any]) -> None:
    tables = random_tables(20, vocab=4, limit=4, seed=3)
    assert [h.tokens for h in drawn(tables, [4] * 20, **changes)] == [h.tokens for h in straight(group(tables, [4] * 20))]


def test_a_seed_repeats_its_samples_and_another_does_not() -> None:
    tables = random_tables(20, vocab=4, limit=4, seed=4)
    assert drawn(tables, [4] * 20, seed=5) == drawn(tables, [4] * 20, seed=5)
    assert drawn(tables, [4] * 20, seed=5) != drawn(tables, [4] * 20, seed=6)


def test_samples_do_not_depend_on_who_shares_the_batch() -> None:
    tables = random_tables(20, vocab=4, limit=4, seed=5)
    limits = [2, 3, 4, 4] * 5
    together = drawn(tables, limits)
    order = torch.randperm(20).tolist()
    shuffled = drawn(tables[order], [limits[name] for name in order], order)
    assert [shuffled[order.index(name)] for name in range(20)] == together
    assert [drawn(tables[name : name + 1], [limits[name]], [name])[0] for name in range(20)] == together


def test_equal_sources_draw_for_themselves() -> None:
    tables = random_tables(1, vocab=4, limit=4, seed=6).expand(50, -1, -1)
    assert len({tuple(hypothesis.tokens) for hypothesis in drawn(tables, [4] * 50)}) > 5


PAIRS = [((0, 1_000_003), (1, 0)), ((4296, 0), (0, 4296 * 1_000_003 - 2**32)), ((0, 1 << 40), (0, 0)), ((0, 1), (1, 0))]


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=str)
def test_no_two_seeds_and_sources_share_their_draws(one: tuple[int, int], other: tuple[int, int]) -> None:
    def fair(tokens: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        return torch.zeros(len(tokens), 100), state

    def said(seed: int, name: int) -> list[int]:
        asked = Group(State(None, None), torch.tensor([20]), [name], [[]])
        return find(asked, fair, method="sample", seed=seed)[0][0].tokens

    assert len(said(*one)) > 3
    assert said(*one) != said(*other)


@given(
    weights=st.lists(st.integers(0, 20), min_size=2, max_size=7).filter(any),
    uniform=st.integers(0, 2**24 - 1).map(lambda n: n / 2**24),
    top_k=st.integers(0, 7),
    top_p=st.floats(0.05, 1.0),
)
def test_a_draw_inverts_the_distribution_of_the_likeliest(weights: list[int], uniform: float, top_k: int, top_p: float) -> None:
    """Walk down the tokens from the likeliest, as far as `top_k` and `top_p` allow, until the share drawn is reached."""
    total = sum(weights)
    cuts = top_k > 0 or top_p < 1  # where nothing is left out, tokens need no order
    order = sorted(range(len(weights)), key=lambda token: -weights[token] if cuts else 0)
    kept = [
        token
        for rank, token in enumerate(order)
        if (top_k == 0 or rank < top_k) and sum(weights[t] for t in order[:rank]) / total < top_p
    ]
    scores = torch.tensor([weights], dtype=torch.float32).log()
    token = int(draw_tokens(scores, torch.tensor([uniform]), top_k, top_p))
    share, below = sum(weights[t] for t in kept), sum(weights[t] for t in order[: order.index(token)])
    assert weights[token] > 0
    slack = 1e-5  # of float32; where the drawn share falls on a border, either side will do
    assert token in kept or below / total == pytest.approx(top_p, abs=slack)
    if top_p == 1.0 or token in kept:
        assert below / share - slack <= uniform + slack * (share != total)
        assert uniform <= (below + weights[token]) / share + slack or kept[-1] == token
