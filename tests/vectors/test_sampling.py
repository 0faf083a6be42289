from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from heedful.vectors import sampling
from heedful.vectors.sampling import (
    MISSING,
    Blocks,
    batches,
    choose_words,
    draw_noise,
    draw_pairs,
    make_blocks,
    subsample_words,
)
from heedful.vectors.tokens import END_OF_LINE, Tokens

WINDOW = 3


def tokens_of(*lines: list[int], vocab: int = 60) -> Tokens:
    ids = np.array([id for line in lines for id in (*line, END_OF_LINE)], np.int32)
    return Tokens(ids, np.bincount(ids[ids >= 0], minlength=vocab))


def pairs_of(blocks: Blocks, paired: torch.Tensor) -> list[tuple[int, int]]:
    """Every pair as (word, other)."""
    found = paired.nonzero().tolist()
    return sorted((int(blocks.words[b, i]), int(blocks.around[b, j])) for b, i, j in found)


def widest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every window at its maximum size."""
    monkeypatch.setattr(torch, "randint", lambda low, high, shape, generator: torch.full(shape, high - 1))


def test_pairs_are_those_within_the_window_on_the_same_line(monkeypatch: pytest.MonkeyPatch) -> None:
    widest(monkeypatch)
    lines = [list(range(20)), [20], list(range(21, 24)), list(range(24, 60))]
    tokens = tokens_of(*lines)
    rows, numbers = subsample_words(tokens.ids, choose_words(tokens.counts, 1, ()), torch.ones(60), torch.Generator())
    blocks = make_blocks(rows, numbers, WINDOW)
    expected = [
        (line[i], line[j])
        for line in lines
        for i in range(len(line))
        for j in range(max(i - WINDOW, 0), min(i + WINDOW + 1, len(line)))
        if i != j
    ]
    assert pairs_of(blocks, draw_pairs(blocks, WINDOW, torch.Generator())) == sorted(expected)


def test_every_distance_up_to_the_window_is_equally_likely() -> None:
    rows = torch.zeros(16_000, dtype=torch.long)
    blocks = make_blocks(rows, rows, WINDOW)
    paired = draw_pairs(blocks, WINDOW, torch.Generator().manual_seed(1))
    right = torch.stack([paired[:, i, i + WINDOW + 1 : i + 2 * WINDOW + 1] for i in range(paired.shape[1])])
    shares = right[..., :-1, :].float().flatten(0, -2).mean(0)  # at distances 1, 2, 3
    torch.testing.assert_close(shares, torch.tensor([1.0, 2 / 3, 1 / 3]), atol=0.02, rtol=0)


def test_rare_and_special_tokens_are_removed_and_their_neighbors_become_adjacent(monkeypatch: pytest.MonkeyPatch) -> None:
    widest(monkeypatch)
    tokens = tokens_of([5, 0, 6, 9], [5, 6])
    vocabulary = choose_words(tokens.counts, 2, (0,))
    assert vocabulary.ids.tolist() == [5, 6]
    assert (vocabulary.rows >= 0).sum() == 2 and vocabulary.rows[9] == MISSING
    blocks = make_blocks(*subsample_words(tokens.ids, vocabulary, torch.ones(2), torch.Generator()), 1)
    assert pairs_of(blocks, draw_pairs(blocks, 1, torch.Generator())) == [(0, 1), (0, 1), (1, 0), (1, 0)]


def counted(counts: list[int]) -> NDArray[np.int64]:
    return np.array(counts, np.int64)


def test_a_frequent_word_is_kept_with_the_root_of_threshold_over_share() -> None:
    counts = counted([90_000, 9_000, 1_000])
    vocabulary = choose_words(counts, 1, ())
    kept = vocabulary.shares_kept(0.01)
    torch.testing.assert_close(kept, torch.tensor([(0.01 / 0.9) ** 0.5, (0.01 / 0.09) ** 0.5, 1.0]))
    ids = np.repeat(np.arange(3, dtype=np.int32), counts)
    rows, _ = subsample_words(ids, vocabulary, kept, torch.Generator().manual_seed(1))
    assert np.allclose(np.bincount(rows) / counts, kept, rtol=0.06)
    assert vocabulary.shares_kept(0.0).tolist() == [1.0, 1.0, 1.0]


def test_negative_samples_follow_counts_to_the_power_of_three_quarters() -> None:
    counts = counted([1000, 100, 10, 1])
    drawn = draw_noise(choose_words(counts, 1, ()).noise(), 4000, torch.Generator().manual_seed(1))
    shares = np.bincount(drawn.flatten(), minlength=4) / drawn.numel()
    expected = counts**0.75 / (counts**0.75).sum()
    assert np.allclose(shares, expected, rtol=0.05)


def test_an_epoch_has_every_word_once_for_any_slice_size(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = tokens_of(*([1, 2, 3, 4, 5] for _ in range(500)))
    vocabulary = choose_words(tokens.counts, 1, ())
    for size in (77, 1 << 18):
        monkeypatch.setattr(sampling, "SLICE", size)
        shown = list(batches(tokens, vocabulary, torch.Generator(), window=2, negatives=5, subsample=0.0))
        used = torch.cat([batch.words[batch.weights.sum(-1) > 0] for batch, _ in shown])
        assert sum(batch.words.numel() for batch, _ in shown) >= 2500
        assert (torch.bincount(used) >= 450).all()  # a word alone at the end of a slice has no pair
        parts = [part for _, part in shown]
        assert parts == sorted(parts) and parts[0] == 0 and parts[-1] < 1
