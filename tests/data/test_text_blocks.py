"""Blocks of text: cuts of one text, and mixtures of several."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.text_blocks import BlockMixture, BlockShape, JoinedText, count_blocks, cut_blocks

SHAPE = BlockShape(width=9, stride=8)
TOKENS = [100, 41, 9]


@pytest.mark.parametrize("sizes", [[30], [12, 7, 20], [5, 0, 25]])
def test_joined_texts_have_the_tokens_of_their_concatenation(sizes: list[int]) -> None:
    whole = np.arange(sum(sizes), dtype=np.uint16)
    joined = JoinedText(np.split(whole, np.cumsum(sizes)[:-1]))
    begins = np.cumsum([0, *sizes[:-1]])
    starts = np.array([begin + at for begin, size in zip(begins, sizes, strict=True) for at in range(size - 3)])
    np.random.default_rng(1).shuffle(starts)
    assert len(starts) and np.array_equal(joined.rows(starts, 4), whole[starts[:, None] + np.arange(4)])
    for start in starts.tolist():
        assert joined.span(start, start + 3).tolist() == [start, start + 1, start + 2]


@given(tokens=st.integers(9, 80), seed=st.integers(0, 50))
def test_a_cut_has_blocks_side_by_side_and_at_least_the_counted_ones(tokens: int, seed: int) -> None:
    starts = cut_blocks(tokens, SHAPE, np.random.default_rng(seed))
    assert 0 <= starts[0] < SHAPE.stride and starts[-1] + SHAPE.width <= tokens
    assert (np.diff(starts) == SHAPE.stride).all()
    assert len(starts) in (count_blocks(tokens, SHAPE), count_blocks(tokens, SHAPE) + 1)


@given(
    weight=st.sampled_from([0.1, 0.25, 0.5, 1.0, 2.5, 3.0]), epoch=st.integers(0, 5), temperature=st.sampled_from([1.0, 2.0])
)
def test_an_epoch_has_the_blocks_of_each_corpus_by_its_weight(weight: float, epoch: int, temperature: float) -> None:
    mixture = BlockMixture(TOKENS, SHAPE, [weight, 1.0, 2.0], temperature)
    starts = mixture.draw(seed=3, epoch=epoch)
    numbers, ends = (np.searchsorted(mixture.begins, at, side="right") - 1 for at in (starts, starts + SHAPE.width - 1))
    assert np.array_equal(numbers, ends), "a block is inside one text"
    amounts = np.array([weight, 1.0, 2.0]) * [11, 4, 1]
    shares = amounts ** (1 / temperature) / (amounts ** (1 / temperature)).sum()
    expected = [max(round(share * amounts.sum()), 1) for share in shares]
    assert np.bincount(numbers).tolist() == mixture.counts() == expected


def test_epochs_continue_a_pass_and_every_pass_is_a_new_cut() -> None:
    """Of 100 tokens a cut has 11 blocks, so with a weight of 4 / 11 three passes are twelve thirds of the text."""
    mixture = BlockMixture([100], SHAPE, [4 / 11])
    drawn = np.concatenate([mixture.draw(seed=3, epoch=epoch) for epoch in range(33)])
    passes = drawn.reshape(12, 11)
    for one in passes:
        assert (np.diff(np.sort(one)) == SHAPE.stride).all(), "the blocks of one cut, each once"
    assert len({int(one.min()) % SHAPE.stride for one in passes}) > 4
    assert any(one.tolist() != sorted(one.tolist()) for one in passes)
    static = np.concatenate([mixture.draw(seed=3, epoch=epoch, static=True) for epoch in range(33)]).reshape(12, 11)
    assert len({tuple(sorted(one.tolist())) for one in static}) == 1


def test_a_mixture_is_a_function_of_seed_and_epoch() -> None:
    def draw(seed: int, epoch: int) -> list[int]:
        return [*map(int, BlockMixture(TOKENS, SHAPE, [0.5, 2.0, 1.0]).draw(seed=seed, epoch=epoch))]

    assert draw(1, 4) == draw(1, 4)
    assert draw(1, 4) != draw(1, 5)
    assert draw(1, 4) != draw(2, 4)
