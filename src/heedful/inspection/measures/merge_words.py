"""Soft alignment: the weights of attention to the source (nn/source_attention.py) between words.

    merged  = target^T weights source / pieces of the target word   subword pieces become words

Row t holds the weights of the decoder step that *predicts* target token t; row t + 1 those of the step that *consumes* it,
which in some layers align better (Chen et al., 2020). `alignment_links.py` turns weights into links.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def merge_into_words(weights: Tensor, source_words: Sequence[int], target_words: Sequence[int]) -> Tensor:
    """Merge pieces into words: sum over the pieces of a source word, average over those of a target word.

    weights (target pieces, source pieces); the word index of each piece -> (target words, source words)."""
    return merge_pieces(weights[None, None], torch.tensor([source_words]), torch.tensor([target_words]))[0, 0]


def merge_pieces(weights: Tensor, source_words: Tensor, target_words: Tensor) -> Tensor:
    """Batched `merge_into_words`: weights (rows, heads, target pieces, source pieces), source_words (rows, source
    pieces), target_words (rows, target pieces), -1: special token or padding -> (rows, heads, target words, source words)."""
    source = word_membership(source_words).to(weights)[:, None]  # (rows, 1, source pieces, source words)
    target = word_membership(target_words).to(weights)[:, None]  # (rows, 1, target pieces, target words)
    pieces = target.sum(-2)[..., None].clamp(min=1)  # (rows, 1, target words, 1)
    return target.transpose(-2, -1) @ weights @ source / pieces


def word_membership(words: Tensor) -> Tensor:
    """(rows, pieces) -> (rows, pieces, words): 1 where the piece belongs to the word."""
    return nn.functional.one_hot(words + 1)[..., 1:]
