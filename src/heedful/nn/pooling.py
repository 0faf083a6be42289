"""Attention pooling: one vector for a sequence, the mean of its states weighted by how well they match a learned vector.

u_t = tanh(W h_t + b)        a = softmax_t(u_t . v)        s = sum_t a_t h_t          (Yang et al., 2016)
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from heedful.nn.hooks import HookPoint
from heedful.nn.linear import linear


class AdditivePooling(nn.Module):
    def __init__(self, dim: int, hidden: int | None = None) -> None:
        """hidden: size of u and v; default: dim."""
        super().__init__()
        self.map = linear(dim, hidden or dim)
        self.query = nn.Parameter(torch.randn(hidden or dim) / math.sqrt(hidden or dim))
        self.weights = HookPoint()  # (rows, time)

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        """states (rows, time, dim), mask (rows, time): True for real tokens -> (rows, dim); zeros where all are masked."""
        scores = self.map(states).tanh() @ self.query.to(states.dtype)  # (rows, time)
        if mask is None:
            weights = self.weights(scores.softmax(-1))
        else:
            lowest = torch.finfo(scores.dtype).min  # with -inf, the gradient of a row that is all padding would be NaN
            weights = self.weights(scores.masked_fill(~mask, lowest).softmax(-1).masked_fill(~mask, 0.0))
        return torch.einsum("rt,rtd->rd", weights.to(states.dtype), states)

    if TYPE_CHECKING:
        __call__ = forward
