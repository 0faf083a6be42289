"""The benchmark of positions: its data are correct, and its table has the means of the accuracies."""

from __future__ import annotations

import pytest
import torch
from position_rows import position_rows
from positions import END, FIRST, PAD, VOCAB, answers, evaluation_batch, forced, make, sentences

pytestmark = pytest.mark.benchmark


def test_a_sentence_ends_and_is_padded() -> None:
    lengths = torch.tensor([2, 4])
    tokens = sentences(2, lengths, torch.Generator().manual_seed(0))
    assert tokens.shape == (2, 5)
    assert [row.tolist().index(END) for row in tokens] == [2, 4]
    assert tokens[0, 3:].tolist() == [PAD, PAD]
    assert all(FIRST <= token < VOCAB for token in tokens[1, :4].tolist())


def test_the_target_is_a_copy_or_the_reverse_followed_by_the_end_token() -> None:
    source, lengths = torch.tensor([[5, 6, 7, END], [8, 9, END, PAD]]), torch.tensor([3, 2])
    assert answers(source, lengths, "copy").tolist() == source.tolist()
    assert answers(source, lengths, "reverse").tolist() == [[7, 6, 5, END], [9, 8, END, PAD]]


def test_accuracy_includes_the_end_token() -> None:
    """A model that always predicts the end token is right once per sentence."""
    torch.manual_seed(1)
    model = make("none", 4).eval()
    with torch.no_grad():
        model.embedding.target.weight.zero_()
        model.decoder_last.bias.fill_(1.0)  # type: ignore[operator]
        model.embedding.target.weight[END] = 1.0
    assert forced(model, 3, "copy") == 1 / 4
    assert evaluation_batch(3, "copy")[0].shape == evaluation_batch(3, "copy")[1].shape


def test_the_table_has_means_within_and_beyond_the_training_lengths() -> None:
    exact = {str(length): float(length <= 4) for length in range(1, 9)}
    results = {"trained_to": 4, "schemes": {"none": {"loss": 0.5, "exact": exact, "forced": exact, "seconds": 3.2}}}
    head, row = position_rows(results)
    assert head[2:6] == ["1–4, %", "5, %", "6, %", "7–8, %"]
    assert row == ["none", "0.5000", "100.0", "0.0", "0.0", "0.0", "0.0", "3"]
