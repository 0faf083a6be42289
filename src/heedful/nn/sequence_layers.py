"""Sequence layers: (rows, time, dim) -> (rows, time, dim), one interface for every way to let tokens know of each other.

    kind                     operations    in sequence    longest path      ("Attention Is All You Need", table 1)
    self-attention           n^2 d         1              1
    restricted attention     r n d         1              n / r             a window of r tokens
    parameter-free           n^2 d         1              1                 y_i = sum_j softmax_j(x_i . x_j) x_j
    recurrent                n d^2         n              n                 LSTM, GRU; both ways when not causal
    convolution              k n d^2       1              n / k             gated; log_k(n) when dilations grow

A causal layer never looks ahead. Padding, wherever it stands, has no influence, and zeros come out in its place. Residuals,
norms and positions are the caller's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

import torch
from pydantic import PositiveInt, model_validator
from torch import Tensor, nn
from torch.nn import functional

from heedful.nn import masks
from heedful.nn.attention import SelfAttention, Sight
from heedful.nn.banded import Band, cut_keys, cut_mask, cut_queries, join_blocks
from heedful.nn.dropout import Dropout
from heedful.schema import Config, Probability, Problem, refuse


class LayerSize(Config):
    """What a layer may be told; each kind takes from it what it needs."""

    dim: PositiveInt
    heads: PositiveInt = 8
    window: PositiveInt = 128  # restricted attention: how many tokens one sees
    kernel: PositiveInt = 3  # convolution: how many tokens one sum takes
    dilation: PositiveInt = 2  # dilated convolution: from one of those tokens to the next
    causal: bool = False
    dropout: Probability = 0.0  # of what the layer gives

    @model_validator(mode="after")
    def _divides(self) -> Self:
        problems = []
        if self.dim % self.heads:
            problems.append(Problem("heads", f"given {self.heads}, expected a divisor of dim = {self.dim}"))
        if not self.causal and self.dim % 2:
            problems.append(Problem("dim", f"given {self.dim}, expected an even number: half reads forwards, half backwards"))
        refuse(problems)
        return self


class SequenceLayer(nn.Module):
    """A kind overrides `mix`, and says what it costs."""

    cost: ClassVar[str]  # operations, as in the table above
    steps: ClassVar[str] = "1"  # that must follow one another
    path: ClassVar[str] = "1"  # between the two tokens that are farthest apart: how many layers or steps

    def __init__(self, size: LayerSize) -> None:
        super().__init__()
        self.size = size
        self.dropout = Dropout(size.dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """x (rows, time, dim), mask (rows, time), True for real tokens -> (rows, time, dim)."""
        out = self.dropout(self.mix(x, mask))
        return out if mask is None else out.masked_fill(~mask[..., None], 0.0)

    def mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        raise NotImplementedError

    @staticmethod
    def operations(size: LayerSize, time: int) -> int:
        """`cost` with numbers in it."""
        raise NotImplementedError

    if TYPE_CHECKING:
        __call__ = forward


class FullAttention(SequenceLayer):
    """Multi-head self-attention: every token sees every other."""

    cost = "n^2 d"

    def __init__(self, size: LayerSize) -> None:
        super().__init__(size)
        self.attention = SelfAttention(size.dim, size.heads, size.dim // size.heads, dropout=0.0)

    def mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return self.attention(*self.attention.split(x), look(x, mask, causal=self.size.causal))

    @staticmethod
    def operations(size: LayerSize, time: int) -> int:
        return time * time * size.dim


def look(x: Tensor, mask: Tensor | None, *, causal: bool) -> Sight:
    """All real tokens, or those up to oneself."""
    if mask is None:
        return Sight(causal=causal)
    real = mask[:, None, None, :]  # (rows, 1, 1, key)
    if not causal:
        return Sight(real)
    places = torch.arange(x.shape[1], device=x.device)[None]
    return Sight(real & masks.causal(places, places))  # (rows, 1, query, key)


class RestrictedAttention(SequenceLayer):
    """Self-attention that sees a window: the last r tokens, or those at most r / 2 away."""

    cost, path = "r n d", "n / r"

    def __init__(self, size: LayerSize) -> None:
        super().__init__(size)
        self.attention = SelfAttention(size.dim, size.heads, size.dim // size.heads, dropout=0.0)

    def mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        rows, time, _ = x.shape
        band = Band(time, self.size.window, self.size.causal)
        real = torch.ones(rows, time, dtype=torch.bool, device=x.device) if mask is None else mask
        query, key, value = self.attention.split(x)
        found = self.attention(
            cut_queries(query, band), cut_keys(key, band), cut_keys(value, band), Sight(cut_mask(real, band))
        )  # (rows x blocks, block, dim)
        return join_blocks(found, band)

    @staticmethod
    def operations(size: LayerSize, time: int) -> int:
        return size.window * time * size.dim


class ParameterFreeAttention(SequenceLayer):
    """Every token becomes the mean of all, weighted by softmax(x x^T): nothing to learn but what comes before it."""

    cost = "n^2 d"

    def mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        sight = look(x, mask, causal=self.size.causal)
        one_head = x[:, None]  # (rows, 1, time, dim)
        return functional.scaled_dot_product_attention(
            one_head, one_head, one_head, sight.mask, is_causal=sight.causal, scale=1.0
        )[:, 0]

    @staticmethod
    def operations(size: LayerSize, time: int) -> int:
        return time * time * size.dim


class Recurrent(SequenceLayer):
    """A state that walks along the sequence; when not causal, two states of half the size that walk towards each other.

    Each walks over the real tokens alone: they are brought together first, and put back in their places afterwards."""

    cost, steps, path = "n d^2", "n", "n"
    cell: ClassVar[type[nn.LSTM] | type[nn.GRU]]

    def __init__(self, size: LayerSize) -> None:
        super().__init__(size)
        hidden = size.dim if size.causal else size.dim // 2
        self.forwards = self.cell(size.dim, hidden, batch_first=True)
        self.backwards = None if size.causal else self.cell(size.dim, hidden, batch_first=True)

    def mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        ahead = walk(self.forwards, x, mask)
        if self.backwards is None:
            return ahead
        back = walk(self.backwards, x.flip(1), None if mask is None else mask.flip(1)).flip(1)
        return torch.cat((ahead, back), dim=-1)  # (rows, time, dim)

    @staticmethod
    def operations(size: LayerSize, time: int) -> int:
        return time * size.dim**2


def walk(cell: nn.LSTM | nn.GRU, x: Tensor, mask: Tensor | None) -> Tensor:
    """(rows, time, dim), (rows, time) -> the states (rows, time, hidden)."""
    if mask is None:
        states: Tensor = cell(x)[0]
        return states
    order = torch.sort(~mask, dim=1, stable=True).indices  # real tokens first: (rows, time)
    states = cell(x.take_along_dim(order[..., None], 1))[0]
    return states.take_along_dim(order.argsort(1)[..., None], 1)


class Lstm(Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997)."""

    cell = nn.LSTM


class Gru(Recurrent):
    """Gated recurrent units (Cho et al., 2014)."""

    cell = nn.GRU


class Convolution(SequenceLayer):
    """A weighted sum over k neighbours, half of which opens and shuts the other (gated linear units, Dauphin et al., 2017)."""

    cost, path = "k n d^2", "n / k"

    def __init__(self, size: LayerSize, dilation: int = 1) -> None:
        super().__init__(size)
        self.reach = (size.kernel - 1) * dilation  # from the first of the k tokens to the last
        self.sum = nn.Conv1d(size.dim, 2 * size.dim, size.kernel, dilation=dilation)

    def mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        known = x if mask is None else x.masked_fill(~mask[..., None], 0.0)
        before = self.reach if self.size.causal else self.reach // 2
        padded = functional.pad(known, (0, 0, before, self.reach - before))  # (rows, reach + time, dim)
        sums = self.sum(padded.transpose(1, 2))  # (rows, 2 dim, time)
        return functional.glu(sums, dim=1).transpose(1, 2)

    @staticmethod
    def operations(size: LayerSize, time: int) -> int:
        return size.kernel * time * size.dim**2


class DilatedConvolution(Convolution):
    """The same with gaps (ByteNet, Kalchbrenner et al., 2016): stacked with growing gaps it sees far in few layers."""

    path = "log_k n"

    def __init__(self, size: LayerSize) -> None:
        super().__init__(size, size.dilation)


SEQUENCE_LAYERS: dict[str, type[SequenceLayer]] = {
    "self-attention": FullAttention,
    "restricted": RestrictedAttention,
    "parameter-free": ParameterFreeAttention,
    "lstm": Lstm,
    "gru": Gru,
    "convolution": Convolution,
    "dilated": DilatedConvolution,
}
