"""Segments of a row, such as the sentences of a document or the turns of a dialogue, moved to a grid (segments, words).

tokens    a b | c | d e f         segment of each token  0 0 1 2 2 2        grid   a b .
                                                                                   c . .
                                                                                   d e f
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


class Grid(NamedTuple):
    """The place of each token in a grid of sentences and words."""

    places: Tensor  # (rows, time): sentence x words + word; padding: sentences x words
    sentences: int
    words: int

    def move(self, x: Tensor) -> Tensor:
        """x (rows, time, dim) -> (rows, sentences, words, dim), zeros where there is no token."""
        grid = x.new_zeros(x.shape[0], self.sentences * self.words + 1, x.shape[2])
        grid = grid.scatter(1, self.places[..., None].expand_as(x), x)
        return grid[:, :-1].view(x.shape[0], self.sentences, self.words, -1)  # the last place is that of padding

    def move_back(self, grid: Tensor) -> Tensor:
        """grid (rows, sentences, words, dim) -> (rows, time, dim), zeros for padding."""
        flat = functional.pad(grid.flatten(1, 2), (0, 0, 0, 1))  # (rows, sentences x words + 1, dim)
        return flat.gather(1, self.places[..., None].expand(-1, -1, flat.shape[2]))


def make_grid(segments: Tensor, mask: Tensor, sizes: tuple[int, int]) -> Grid:
    """segments (rows, time): the sentence of each token; mask (rows, time); sizes: sentences, and words of a sentence."""
    word, (sentences, words) = word_in_segment(segments), sizes
    places = (segments * words + word).masked_fill(~mask, sentences * words)
    return Grid(places, sentences, words)


def word_in_segment(segments: Tensor) -> Tensor:
    """The place of each token in its segment, from 0: (rows, time)."""
    time = torch.arange(segments.shape[1], device=segments.device).expand_as(segments)
    begins = (segments != segments.roll(1, 1)) | (time == 0)
    return time - torch.where(begins, time, 0).cummax(1).values


def grid_sizes(segments: Tensor, mask: Tensor, limit: tuple[int, int]) -> tuple[int, int]:
    """The limits, or on a CPU, where reading them is free, the sizes that occur; arguments as in `make_grid`."""
    if sizes_can_be_read(segments):
        occurring = (segments, word_in_segment(segments))
        sentences, words = (int(places.masked_fill(~mask, 0).max()) + 1 for places in occurring)
    else:
        sentences, words = (min(size, segments.shape[1]) for size in limit)
    return sentences, words


def sizes_can_be_read(tensor: Tensor) -> bool:
    """Whether reading a number of the tensor costs nothing: not on a GPU, nor where operators are recorded."""
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()
