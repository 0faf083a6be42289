"""Batches: start, end and padding tokens are in place, with any tokenizer's ids."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.tasks.batches import collate, fill_up, pad_length, source_tensors, split_batch
from heedful.text.specials import Specials

OTHER_IDS = Specials(pad=3, start=0, end=99, unk=1)  # padding is not 0
IS, THE = 16, 42
OWN_IDS = Specials(pad=0, start=1, end=2, unk=3)


def test_a_batch_by_hand() -> None:
    batch = collate([[THE, IS, 1], [IS]], [[THE], [IS, THE, THE, 1]], OTHER_IDS, OTHER_IDS)
    assert batch.source.tolist() == [[42, 16, 1, 99], [16, 99, 3, 3]]
    assert batch.source_mask is not None
    assert batch.source_mask.tolist() == [[True, True, True, True], [True, True, False, False]]
    assert batch.target_in.tolist() == [[0, 42, 3, 3, 3], [0, 16, 42, 42, 1]]
    assert batch.target_out.tolist() == [[42, 99, 3, 3, 3], [16, 42, 42, 1, 99]]
    assert batch.tokens == 7


def test_each_side_has_its_own_special_ids() -> None:
    batch = collate([[5], [5, 6]], [[7, 8], [7]], OTHER_IDS, OWN_IDS)
    assert batch.source.tolist() == [[5, 99, 3], [5, 6, 99]]
    assert batch.target_in.tolist() == [[1, 7, 8], [1, 7, 0]]
    assert batch.target_out.tolist() == [[7, 8, 2], [7, 2, 0]]


def test_without_padding_there_is_no_mask() -> None:
    source, mask = source_tensors([[5, 6], [7, 8]], OWN_IDS)
    assert source.tolist() == [[5, 6, 2], [7, 8, 2]]
    assert mask is None


def test_an_empty_sentence_is_the_end_token() -> None:
    batch = collate([[]], [[]], OWN_IDS, OWN_IDS)
    assert (batch.source.tolist(), batch.target_in.tolist(), batch.target_out.tolist()) == ([[2]], [[1]], [[2]])


SENTENCE = st.lists(st.integers(4, 50), max_size=5)
SENTENCES = st.lists(st.tuples(SENTENCE, SENTENCE), min_size=1, max_size=7)


@given(pairs=SENTENCES)
def test_the_sentences_can_be_recovered_from_a_batch(pairs: list[tuple[list[int], list[int]]]) -> None:
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    batch = collate(sources, targets, OWN_IDS, OWN_IDS)
    mask = torch.ones_like(batch.source, dtype=torch.bool) if batch.source_mask is None else batch.source_mask
    assert [row[real].tolist() for row, real in zip(batch.source, mask, strict=True)] == [[*s, 2] for s in sources]
    assert [row[row != 0].tolist() for row in batch.target_in] == [[1, *t] for t in targets]
    assert [row[row != 0].tolist() for row in batch.target_out] == [[*t, 2] for t in targets]
    assert batch.target_in.shape == batch.target_out.shape
    assert batch.tokens == int((batch.target_out != 0).sum())


@given(pairs=SENTENCES, parts=st.integers(1, 4))
def test_the_parts_of_a_batch_concatenate_to_the_batch(pairs: list[tuple[list[int], list[int]]], parts: int) -> None:
    batch = collate([source for source, _ in pairs], [target for _, target in pairs], OWN_IDS, OWN_IDS)
    split = split_batch(batch, parts, OWN_IDS.pad)
    assert 1 <= len(split) <= parts
    for field in ("source", "target_in", "target_out"):
        assert torch.equal(torch.cat([getattr(part, field) for part in split]), getattr(batch, field))
    assert sum(part.tokens for part in split) == batch.tokens
    if batch.source_mask is None:
        assert all(part.source_mask is None for part in split)
    else:
        assert torch.equal(torch.cat([part.source_mask for part in split if part.source_mask is not None]), batch.source_mask)


def test_all_tensors_of_a_batch_move_to_a_device() -> None:
    batch = collate([[5], [5, 6]], [[7], [7, 8]], OWN_IDS, OWN_IDS).to(torch.device("meta"))
    tensors = [value for value in batch if isinstance(value, torch.Tensor)]
    assert [tensor.device.type for tensor in tensors] == ["meta"] * 4
    assert batch.tokens == 5


@pytest.mark.parametrize("parts", [2, 3])
def test_the_token_counts_of_parts_add_up(parts: int) -> None:
    batch = collate([[5]] * 4, [[7], [7, 8], [9], []], OWN_IDS, OWN_IDS)
    assert [part.tokens for part in split_batch(batch, parts, OWN_IDS.pad)] == [5, 3]


@given(longest=st.integers(1, 300), multiple=st.integers(1, 40), limit=st.integers(1, 300))
def test_a_length_is_rounded_up_to_a_multiple_but_not_beyond_the_limit(longest: int, multiple: int, limit: int) -> None:
    length = pad_length(longest, multiple, limit)
    assert longest <= length < longest + multiple and length <= max(longest, limit)
    assert length % multiple == 0 or length in (longest, limit)


def test_a_filled_batch_has_the_same_tokens() -> None:
    batch = collate([[5, 6], [7]], [[8], [9, 10]], OWN_IDS, OWN_IDS)
    filled = fill_up(batch, 24, (8, 4), OWN_IDS, OWN_IDS)
    assert filled.source.shape == (3, 8) and filled.target_in.shape == (3, 4)
    assert filled.source[:2, :3].equal(batch.source) and filled.target_out[:2, :3].equal(batch.target_out)
    assert filled.tokens == batch.tokens == int((filled.target_out != OWN_IDS.pad).sum())
