"""Masks: True where attention is allowed. All masks are made here and combined with `&` before the softmax.

padding   (batch, time)              which tokens of a sequence are real
causal    (query, key)               a token attends to itself and to previous tokens
window    (query, key)               a token attends to tokens at most r/2 away, or to the last r tokens including itself
"""

from __future__ import annotations

import torch
from torch import Tensor


def padding(lengths: Tensor, time: int) -> Tensor:
    """(batch,) lengths -> (batch, time)."""
    return torch.arange(time, device=lengths.device) < lengths[:, None]


def causal(query_positions: Tensor, key_positions: Tensor) -> Tensor:
    """(rows, query), (rows, key) -> (rows, query, key)."""
    return key_positions[:, None, :] <= query_positions[:, :, None]


def window(query_positions: Tensor, key_positions: Tensor, width: int) -> Tensor:
    """|i - j| <= width / 2: restricted self-attention of "Attention Is All You Need", section 4.

    Shapes as in `causal`. For causal attention use `causal_window`: combined with a causal mask, this one covers r/2 tokens."""
    distance = key_positions[:, None, :] - query_positions[:, :, None]  # (rows, query, key)
    return distance.abs() <= width // 2


def causal_window(query_positions: Tensor, key_positions: Tensor, width: int) -> Tensor:
    """i - width < j <= i: the last `width` tokens including the current one. Shapes as in `causal`."""
    distance = query_positions[:, :, None] - key_positions[:, None, :]  # (rows, query, key)
    return (distance >= 0) & (distance < width)
