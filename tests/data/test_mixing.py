"""Mixtures of corpora: weights, temperatures and the order of an epoch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data.mixing import corpus_counts, mix_corpora, temper_weights


@settings(max_examples=50)
@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=3),
    weight=st.sampled_from([0.1, 0.25, 0.5, 1.0, 1.5, 3.0]),
    epochs=st.integers(1, 6),
)
def test_a_mixture_uses_each_pair_of_a_corpus_equally_often(sizes: list[int], weight: float, epochs: int) -> None:
    weights = [1.0, weight, 2.0][: len(sizes)]
    uses = np.zeros(sum(sizes), int)
    for epoch in range(epochs):
        indices = mix_corpora(sizes, weights, seed=3, epoch=epoch)
        assert len(indices) == sum(max(round(w * size), 1) for w, size in zip(weights, sizes, strict=True))
        np.add.at(uses, indices, 1)
    for part, size, w in zip(np.split(uses, np.cumsum(sizes)[:-1]), sizes, weights, strict=True):
        assert part.max() - part.min() <= 1
        assert part.sum() == epochs * max(round(w * size), 1)


@given(
    sizes=st.lists(st.integers(1, 10_000), min_size=2, max_size=5),
    weights=st.lists(st.floats(0.1, 10.0), min_size=5, max_size=5),
    temperature=st.floats(1.0, 50.0),
)
def test_a_temperature_gives_shares_proportional_to_a_power_and_keeps_the_size_of_an_epoch(
    sizes: list[int], weights: list[float], temperature: float
) -> None:
    given_weights = weights[: len(sizes)]
    amounts = np.array(sizes) * np.array(given_weights)
    tempered = np.array(temper_weights(sizes, given_weights, temperature)) * np.array(sizes)
    assert tempered.sum() == pytest.approx(amounts.sum())
    assert tempered / tempered.sum() == pytest.approx(amounts ** (1 / temperature) / (amounts ** (1 / temperature)).sum())
    assert temper_weights(sizes, given_weights, 1.0) == pytest.approx(given_weights)


def test_a_temperature_in_closed_form() -> None:
    weights = temper_weights([900, 100], [1.0, 1.0], 2.0)  # shares 30 : 10
    assert corpus_counts([900, 100], weights) == [750, 250]
    assert len(mix_corpora([900, 100], weights, seed=1, epoch=3)) == 1000


def test_a_mixture_is_a_function_of_seed_and_epoch() -> None:
    def draw(seed: int, epoch: int) -> list[int]:
        return [*map(int, mix_corpora([50, 40], [0.5, 2.0], seed=seed, epoch=epoch))]

    assert draw(1, 4) == draw(1, 4)
    assert draw(1, 4) != draw(1, 5)
    assert draw(1, 4) != draw(2, 4)
