"""Residual connections, normalization and feed-forward layers of Transformers.

post-norm   x <- norm(x + dropout(f(x)))        the paper, GPT-1, BERT
pre-norm    x <- x + dropout(f(norm(x)))        GPT-2, ViT; with a final norm after the stack
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.nn import functional

from heedful.nn.dropout import Dropout
from heedful.nn.kernels import add_norm
from heedful.nn.linear import linear


class PostNorm(nn.Module):
    def __init__(self, dim: int, dropout: float, eps: float = 1e-5) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim, eps)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        return add_norm(x, self.dropout(function(x)), self.norm.weight, self.norm.bias, self.norm.eps)

    @staticmethod
    def last(dim: int, eps: float = 1e-5) -> nn.Module:
        """The module after the last layer of a stack."""
        return nn.Identity()

    if TYPE_CHECKING:
        __call__ = forward


class PreNorm(nn.Module):
    def __init__(self, dim: int, dropout: float, eps: float = 1e-5) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim, eps)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        return x + self.dropout(function(self.norm(x)))

    @staticmethod
    def last(dim: int, eps: float = 1e-5) -> nn.Module:
        return nn.LayerNorm(dim, eps)

    if TYPE_CHECKING:
        __call__ = forward


Residual = PostNorm | PreNorm
NORMS: dict[str, type[PostNorm] | type[PreNorm]] = {"post": PostNorm, "pre": PreNorm}


class FeedForward(nn.Module):
    """activation(x W1 + b1) W2 + b2, for each position independently."""

    def __init__(self, dim: int, hidden: int, activation: str, dropout: float) -> None:
        super().__init__()
        self.name, self.activation = activation, ACTIVATIONS[activation]
        self.rise = linear(dim, hidden)
        self.dropout = Dropout(dropout)
        self.fall = linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fall(self.dropout(self.activation(self.rise(x))))
        return out

    if TYPE_CHECKING:
        __call__ = forward


class SwiGLU(nn.Module):
    """(silu(x G) * x W1) W2 (Shazeer, 2020): one half of the up-projection gates the other."""

    def __init__(self, dim: int, hidden: int, activation: str, dropout: float) -> None:
        super().__init__()
        self.rise = linear(dim, 2 * hidden)
        self.dropout = Dropout(dropout)
        self.fall = linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.rise(x).chunk(2, dim=-1)
        out: Tensor = self.fall(self.dropout(functional.silu(gate) * value))
        return out

    if TYPE_CHECKING:
        __call__ = forward


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),  # as published with GPT
}
FEED_FORWARDS: dict[str, type[FeedForward] | type[SwiGLU]] = {
    "relu": FeedForward,
    "gelu": FeedForward,
    "gelu_tanh": FeedForward,
    "swiglu": SwiGLU,
}
