"""Soft alignment: attention weights of pieces are merged into those of words."""

from __future__ import annotations

import torch
from torch.testing import assert_close

from heedful.inspection.measures.merge_words import merge_into_words, merge_pieces


def test_pieces_are_merged_into_words() -> None:
    """Sum over the pieces of a source word, mean over those of a target word."""
    weights = torch.tensor([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4], [0.5, 0.1, 0.4]])
    merged = merge_into_words(weights, [0, 0, 1], [0, 1, 1])
    assert_close(merged, torch.tensor([[0.3, 0.7], [0.6, 0.4]]))
    assert_close(merged.sum(-1), torch.ones(2))


def test_batched_merging_equals_merging_each_row() -> None:
    weights = torch.rand(2, 3, 4, 5)
    source, target = [[0, 0, 1, 2, -1], [0, 1, 1, -1, -1]], [[0, 1, 1, -1], [-1, 0, 0, 1]]
    merged = merge_pieces(weights, torch.tensor(source), torch.tensor(target))
    assert merged.shape == (2, 3, 2, 3)
    assert_close(merged[0, 1], merge_into_words(weights[0, 1, :3, :4], source[0][:4], target[0][:3]))
    assert_close(merged[1, 2, :, :2], merge_into_words(weights[1, 2, 1:, :3], source[1][:3], target[1][1:]))
    assert not merged[1, :, :, 2].any()  # beyond the words of the row
