"""Masked language modeling: which tokens are chosen, what replaces them, and how text becomes sequences."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from heedful.data.text_blocks import JoinedText
from heedful.errors import DataError
from heedful.tasks.masked.masking import Masking, draw_uniform, mask_rows
from heedful.tasks.masked.sequences import Blocks, Pairs, cut_texts
from heedful.text.specials import Specials

VOCAB, SPECIAL, MASK = 200, 5, 4
MARKS = Specials(0, 1, 2, 3, MASK)
MASKING = Masking(0.15, 0.8, 0.1, MASK, MARKS.pad, np.arange(VOCAB) < SPECIAL)


def random_rows(rows: int, time: int) -> NDArray[np.int64]:
    """Tokens after [CLS], one in ten of them special."""
    generator = np.random.default_rng(7)
    tokens = generator.integers(SPECIAL, VOCAB, (rows, time))
    special = generator.random((rows, time)) < 0.1
    tokens[special] = generator.integers(SPECIAL, size=special.sum())
    tokens[:, 0] = MARKS.start
    return tokens


def test_chosen_tokens_have_the_published_statistics_and_are_never_special() -> None:
    rows = random_rows(1000, 128)
    masked = mask_rows(rows, (1, 2), np.arange(1000), MASKING)
    used = masked.targets != MARKS.pad
    candidates = (rows >= SPECIAL).sum(1)
    assert (used.sum(1) == np.maximum(1, np.rint(0.15 * candidates))).all()
    total, chosen = int(candidates.sum()), int(used.sum())
    assert total > 100_000 and abs(chosen / total - 0.15) < 3 * (0.15 * 0.85 / total) ** 0.5
    originals = np.take_along_axis(rows, masked.places, 1)
    assert (originals[used] == masked.targets[used]).all() and masked.targets[used].min() >= SPECIAL
    now = np.take_along_axis(masked.tokens, masked.places, 1)[used]
    kept, hidden = now == masked.targets[used], now == MASK
    same = 0.1 / (VOCAB - SPECIAL)  # a random token is the original by chance
    for share, expected in ((hidden, 0.8), (kept, 0.1 + same), (~hidden & ~kept, 0.1 - same)):
        assert abs(share.mean() - expected) < 3 * (expected * (1 - expected) / chosen) ** 0.5
    assert now[~hidden].min() >= SPECIAL
    changed = masked.tokens != rows  # nothing but chosen tokens
    np.put_along_axis(changed, masked.places, np.where(used, False, np.take_along_axis(changed, masked.places, 1)), 1)
    assert not changed.any()


def test_random_tokens_and_places_are_uniform() -> None:
    rows = np.full((4000, 21), 9)
    rows[:, 0] = MARKS.start
    masked = mask_rows(rows, (3, 4), np.arange(4000), MASKING._replace(masked=0.0, random=1.0))
    assert (
        masked.places.min() == 1
    )  # 3 of 20 tokens; chi-squared of 19 and 194 degrees of freedom, both below their 99.9% points
    observed = np.bincount(masked.places.ravel(), minlength=21)[1:]
    assert ((observed - 600) ** 2 / 600).sum() < 43.8
    drawn = np.bincount(np.take_along_axis(masked.tokens, masked.places, 1).ravel(), minlength=VOCAB)
    expected = 12_000 / (VOCAB - SPECIAL)
    assert not drawn[:SPECIAL].any() and ((drawn[SPECIAL:] - expected) ** 2 / expected).sum() < 260


def test_draws_depend_on_key_and_place_only() -> None:
    both, one = draw_uniform((1, 2), np.array([5, 900]), 40), draw_uniform((1, 2), np.array([900]), 40)
    assert (both[1:] == one).all()
    assert not np.intersect1d(both, draw_uniform((1, 3), np.array([5, 900]), 40)).size


def test_a_row_without_candidates_has_no_prediction() -> None:
    rows = np.array([[1, 2, 2, 2], [1, 7, 2, 2]])
    assert [(row != MARKS.pad).sum() for row in mask_rows(rows, (1, 1), np.arange(2), MASKING).targets] == [0, 1]


def test_blocks_are_full_and_cover_the_text_once() -> None:
    ids = np.arange(5, 150).astype(np.uint16)
    blocks = Blocks(JoinedText([ids]), 16, MARKS)
    offsets = set()
    for seed in range(20):
        plan = blocks.plan(np.random.default_rng(seed))
        tokens = blocks.rows(plan).tokens
        assert tokens.shape == (len(plan), 16) and (tokens[:, 0] == MARKS.start).all() and tokens.min() > MARKS.pad
        text = tokens[:, 1:].ravel()
        assert (np.diff(text) == 1).all() and len(text) > len(ids) - 2 * 15
        offsets.add(int(text[0]))
    assert len(offsets) > 5


def line(*tokens: int) -> list[int]:
    return [*tokens, MARKS.end]


def test_texts_of_pairs_are_runs_of_whole_lines_or_equal_parts_of_a_long_line() -> None:
    ids = [*line(10, 11), *line(12), *line(13, 14, 15), *line(), *line(16), *line(*range(20, 30)), *line(17, 18)]
    spans, documents = cut_texts(np.array(ids), MARKS.end, 4)
    texts = [[token for token in ids[a:b] if token != MARKS.end] for a, b in spans]
    assert texts == [[10, 11, 12], [13, 14, 15], [16], [20, 21, 22], [23, 24, 25], [26, 27, 28, 29], [17, 18]]
    assert np.diff(documents).astype(bool).tolist() == [False, True, True, False, False, True]


def test_half_of_the_pairs_continue_and_their_segments_and_padding_fit() -> None:
    ids = np.array([token for number in range(400) for token in line(5 + number, 6 + number)])
    pairs = Pairs(ids, 9, MARKS)  # at most three tokens: every line is a text
    plan = pairs.plan(np.random.default_rng(1))
    rows = pairs.rows(plan)
    first, second = rows.tokens[:, 1], rows.tokens[:, 4]
    assert (rows.tokens[:, [0, 3, 6]] == [MARKS.start, MARKS.end, MARKS.end]).all() and (rows.tokens[:, 7:] == MARKS.pad).all()
    assert rows.labels is not None and ((second == first + 1) == (rows.labels == 0)).all()
    assert abs((rows.labels == 0).mean() - 0.5) < 3 * 0.5 / len(plan) ** 0.5
    assert (first != second).all() and (np.diff(np.sort(first)) == 2).all()  # no text is the first of two pairs
    assert rows.segments is not None and (rows.segments == [0, 0, 0, 0, 1, 1, 1, 0, 0]).all()
    assert rows.mask is not None and (rows.mask == (np.arange(9) < 7)).all()
    with pytest.raises(DataError, match="runs of lines"):
        Pairs(ids[:6], 9, MARKS)
