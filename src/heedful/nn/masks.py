"""Masks. True means: may look. They are made here and nowhere else, and combined with `&` before the softmax.

padding   (batch, time)              which tokens of a sequence are real
causal    (query, key)               a token sees itself and what came before it
window    (query, key)               a token sees its neighbors at most r/2 away, or the r tokens up to itself
"""

from __future__ import annotations

import torch
from torch import Tensor


def padding(lengths: Tensor, time: int) -> Tensor:
    """(batch,) true lengths -> (batch, time)."""
    return torch.arange(time, device=lengths.device) < lengths[:, None]


def causal(query_positions: Tensor, key_positions: Tensor) -> Tensor:
    """(rows, query), (rows, key) -> (rows, query, key)."""
    return key_positions[:, None, :] <= query_positions[:, :, None]


def window(query_positions: Tensor, key_positions: Tensor, width: int) -> Tensor:
    """|i - j| <= width / 2: restricted self-attention of "Attention Is All You Need", section 4.

    Shapes as in `causal`; joined with a causal mask it would halve its view, so see `causal_window`."""
    distance = key_positions[:, None, :] - query_positions[:, :, None]  # (rows, query, key)
    return distance.abs() <= width // 2


def causal_window(query_positions: Tensor, key_positions: Tensor, width: int) -> Tensor:
    """i - width < j <= i: the last `width` tokens, the present one counted."""
    distance = query_positions[:, :, None] - key_positions[:, None, :]  # (rows, query, key)
    return (distance >= 0) & (distance < width)
