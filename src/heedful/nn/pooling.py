"""Pooling: the hidden states of a text as one vector. Padding has no influence.

    mean        sum_t h_t / T
    max         max_t h_t, for each dimension
    last        h_T, the state of the last real token
    attention   sum_t softmax_t(q . h_t / sqrt(dim)) h_t, with a learned query q

All take hidden (rows, time, dim) and mask (rows, time), True for real tokens, None: no padding -> (rows, dim). The state of the
first token, "cls", is `EncoderModel.first_state`, since BERT has a layer for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from heedful.nn.hooks import HookPoint

INITIAL_STD = 0.02  # of the learned query
Pooling = Callable[[Tensor, Tensor | None], Tensor]


def mean(hidden: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return hidden.mean(1)
    real = mask[..., None].to(hidden.dtype)  # (rows, time, 1)
    return (hidden * real).sum(1) / real.sum(1)


def maximum(hidden: Tensor, mask: Tensor | None) -> Tensor:
    return (hidden if mask is None else hidden.masked_fill(~mask[..., None], -math.inf)).amax(1)


def last(hidden: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return hidden[:, -1]
    return hidden[torch.arange(hidden.shape[0], device=hidden.device), mask.sum(1) - 1]


class AttentionPooling(nn.Module):
    """The mean weighted by attention with a learned query; hook point `weights`: (rows, heads = 1, query = 1, time)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.randn(dim) * INITIAL_STD)
        self.weights = HookPoint()

    def forward(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        scores = hidden @ self.query.to(hidden.dtype) / math.sqrt(hidden.shape[-1])  # (rows, time)
        if mask is not None:
            scores = scores.masked_fill(~mask, -math.inf)
        weights = self.weights(scores.softmax(-1)[:, None, None])  # (rows, 1, 1, time)
        return (weights[:, 0] @ hidden).squeeze(1)  # (rows, dim)

    if TYPE_CHECKING:
        __call__ = forward


POOLINGS: dict[str, Callable[[int], Pooling]] = {  # name -> the pooling of states of this size
    "mean": lambda dim: mean,
    "max": lambda dim: maximum,
    "last": lambda dim: last,
    "attention": AttentionPooling,
}
