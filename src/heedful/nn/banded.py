"""Restricted self-attention in blocks: a query attends to r keys, so only scores near the diagonal are computed.

Queries are cut into blocks. Each block gets the keys from the first in its first query's window to the last in its last
query's window:

    queries              [  block  ]
    keys        [ before |  block  | after ]          causal: before = r - 1, after = 0; otherwise both are r / 2

so the scores are n (before + block + after) numbers, not n^2; with blocks as long as the window, about 2 n r.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from heedful.nn import masks

SMALLEST_BLOCK = 16  # the products of smaller matrices cost more than they save


class Band(NamedTuple):
    """A window over a sequence of `time` tokens, cut into blocks."""

    time: int
    window: int
    causal: bool

    @property
    def block(self) -> int:
        return min(max(self.window, SMALLEST_BLOCK), self.time)

    @property
    def before(self) -> int:
        if self.block == self.time:  # a single block
            return 0
        return self.window - 1 if self.causal else self.window // 2

    @property
    def after(self) -> int:
        return 0 if self.causal else self.before

    @property
    def span(self) -> int:
        return self.before + self.block + self.after

    @property
    def missing(self) -> int:
        """Padding of the last block, in tokens."""
        return -self.time % self.block


def cut_queries(x: Tensor, band: Band) -> Tensor:
    """(rows, heads, time, head_dim) -> (rows x blocks, heads, block, head_dim), zeros at the end."""
    padded = functional.pad(x, (0, 0, 0, band.missing))
    blocks = padded.view(*x.shape[:2], -1, band.block, x.shape[-1])  # (rows, heads, blocks, block, head_dim)
    return blocks.transpose(1, 2).flatten(0, 1)


def cut_keys(x: Tensor, band: Band) -> Tensor:
    """(rows, heads, time, head_dim) -> (rows x blocks, heads, span, head_dim), zeros at both ends."""
    padded = functional.pad(x, (0, 0, band.before, band.missing + band.after))
    spans = padded.unfold(2, band.span, band.block)  # (rows, heads, blocks, head_dim, span)
    return spans.permute(0, 2, 1, 4, 3).flatten(0, 1)


def cut_mask(real: Tensor, band: Band) -> Tensor:
    """Padding mask (rows or 1, time) -> attention mask of each block (rows or 1 x blocks, 1, block, span)."""
    padded = functional.pad(real, (band.before, band.missing + band.after))  # False where there is no key
    spans = padded.unfold(1, band.span, band.block).flatten(0, 1)  # (rows x blocks, span)
    places = torch.arange(band.span, device=real.device)[None]
    window = masks.causal_window if band.causal else masks.window
    inside = window(places[:, band.before : band.before + band.block], places, band.window)  # (1, block, span)
    return (spans[:, None, :] & inside)[:, None]


def join_blocks(blocks: Tensor, band: Band) -> Tensor:
    """(rows x blocks, block, dim) -> (rows, time, dim)."""
    return blocks.reshape(-1, band.time + band.missing, blocks.shape[-1])[:, : band.time]
