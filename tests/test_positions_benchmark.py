"""The benchmark of positions: its toys are what they say, and its table the means of its shares."""

from __future__ import annotations

import torch
from position_rows import position_rows
from positions import END, FIRST, PAD, VOCAB, answers, forced, make, sentences, test_batch


def test_a_sentence_ends_and_is_padded() -> None:
    lengths = torch.tensor([2, 4])
    found = sentences(2, lengths, torch.Generator().manual_seed(0))
    assert found.shape == (2, 5)
    assert [row.tolist().index(END) for row in found] == [2, 4]
    assert found[0, 3:].tolist() == [PAD, PAD]
    assert all(FIRST <= token < VOCAB for token in found[1, :4].tolist())


def test_the_answer_is_a_copy_or_the_reverse_with_the_end_at_the_end() -> None:
    source, lengths = torch.tensor([[5, 6, 7, END], [8, 9, END, PAD]]), torch.tensor([3, 2])
    assert answers(source, lengths, "copy").tolist() == source.tolist()
    assert answers(source, lengths, "reverse").tolist() == [[7, 6, 5, END], [9, 8, END, PAD]]


def test_shares_are_counted_over_symbols_and_their_end() -> None:
    """A model that always says the end is right once in a sentence."""
    torch.manual_seed(1)
    model = make("none", 4).eval()
    with torch.no_grad():
        model.target_embedding.weight.zero_()
        model.decoder_last.bias.fill_(1.0)  # type: ignore[operator]
        model.target_embedding.weight[END] = 1.0
    assert forced(model, 3, "copy") == 1 / 4
    assert test_batch(3, "copy")[0].shape == test_batch(3, "copy")[1].shape


def test_the_table_takes_means_within_and_beyond() -> None:
    exact = {str(length): float(length <= 4) for length in range(1, 9)}
    found = {"trained_to": 4, "schemes": {"none": {"loss": 0.5, "exact": exact, "forced": exact, "seconds": 3.2}}}
    head, row = position_rows(found)
    assert head[2:6] == ["1–4, %", "5, %", "6, %", "7–8, %"]
    assert row == ["none", "0.5000", "100.0", "0.0", "0.0", "0.0", "0.0", "3"]
