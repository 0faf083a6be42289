"""Pooling: the hidden states of a text as one vector. Padding has no influence.

    mean        sum_t h_t / T
    max         max_t h_t, for each dimension
    last        h_T, the state of the last real token
    attention   sum_t a_t h_t,  a = softmax_t(u_t . v),  u_t = tanh(W h_t + b)                       (Yang et al., 2016)

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
from heedful.nn.linear import linear

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


def softmax_or_zeros(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax over the last axis where mask is True; zeros, with finite gradients, in rows where it is nowhere True."""
    if mask is None:
        return scores.softmax(-1)
    lowest = torch.finfo(scores.dtype).min  # with -inf, the gradient of a row that is all padding would be NaN
    return scores.masked_fill(~mask, lowest).softmax(-1).masked_fill(~mask, 0.0)


class AttentionPooling(nn.Module):
    """The mean weighted by how well the states match a learned vector."""

    def __init__(self, dim: int, hidden: int | None = None) -> None:
        """hidden: size of u and v; default: dim."""
        super().__init__()
        self.map = linear(dim, hidden or dim)
        self.query = nn.Parameter(torch.randn(hidden or dim) / math.sqrt(hidden or dim))
        self.weights = HookPoint()  # (rows, time)

    def forward(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """Zeros where all is padding."""
        scores = self.map(hidden).tanh() @ self.query.to(hidden.dtype)  # (rows, time)
        weights = self.weights(softmax_or_zeros(scores, mask))
        return torch.einsum("rt,rtd->rd", weights.to(hidden.dtype), hidden)

    if TYPE_CHECKING:
        __call__ = forward


POOLINGS: dict[str, Callable[[int], Pooling]] = {  # name -> the pooling of states of this size
    "mean": lambda dim: mean,
    "max": lambda dim: maximum,
    "last": lambda dim: last,
    "attention": AttentionPooling,
}
