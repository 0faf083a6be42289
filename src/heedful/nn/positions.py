"""Positions: how a stack knows the order of its tokens.

Positions are explicit everywhere, (rows or 1, time), because prompts, prefixes and refilled batches start anywhere.
A scheme overrides any of four methods of `Position`; the rest do nothing:

    embed   add something to the embeddings                     sinusoidal, learned
    rotate  turn queries and keys                               rotary
    bias    add something to the scores                         relative, t5, alibi
    mix     add something to the weighted sum of the values     relative

One instance serves a whole stack; cross-attention has none.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from heedful.errors import HeedfulError
from heedful.nn.attention import AttentionBias
from heedful.nn.linear import linear


class PositionSize(NamedTuple):
    """What a scheme must know of the stack that it serves."""

    dim: int
    heads: int  # the largest number of heads in a layer
    head_dim: int
    limit: int  # positions that a learned table holds
    clip: int  # distance beyond which Shaw's relative positions are all alike
    reads_ahead: bool  # an encoder sees both sides


class Position(nn.Module):
    """No positions at all: the model sees a bag of tokens (a causal mask still tells it a little)."""

    limit: int | None = None  # how many positions there are; None: no end

    def __init__(self, size: PositionSize) -> None:
        super().__init__()
        self.size = size

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """x: (rows, time, dim)."""
        return x

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """x: (rows, heads, time, head_dim)."""
        return x

    def bias(self, query: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor | None:
        """query: (rows, heads, query, head_dim) -> what to add to the scaled scores (rows or 1, heads, query, key)."""
        return None

    def mix(self, weights: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor | None:
        """weights: (rows, heads, query, key) -> what to add to the output (rows, heads, query, head_dim)."""
        return None

    @property
    def mixes(self) -> bool:
        """Whether `mix` needs the weights, which rules the fused kernel out."""
        return type(self).mix is not Position.mix

    def check_length(self, length: int) -> None:
        if self.limit is not None and not torch.compiler.is_compiling() and length > self.limit:
            raise HeedfulError(
                f"a sequence of {length} tokens was given to a model with {self.limit} learned positions",
                hint="shorten the text, or train with a larger model.max_positions or another model.position",
            )


def frequencies(dim: int) -> Tensor:
    """w_k = 10000^(-2k/dim) for each pair k of dimensions: (dim / 2,), in double precision."""
    return torch.exp(torch.arange(0, dim, 2, dtype=torch.float64) * (-math.log(10000.0) / dim))


def sinusoid(positions: Tensor, waves: Tensor) -> Tensor:
    """PE[p, 2k] = sin(p w_k), PE[p, 2k+1] = cos(p w_k): (rows, time), (dim / 2,) -> (rows, time, dim)."""
    angles = positions[..., None] * waves  # (rows, time, dim / 2)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)


class Waves(Position):
    """Schemes of sines and cosines. Their frequencies stay in single precision when a model is cast to half."""

    waves: Tensor

    def __init__(self, size: PositionSize, dim: int) -> None:
        super().__init__(size)
        self.dim = dim
        self.register_buffer("waves", frequencies(dim).float(), persistent=False)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.waves = frequencies(self.dim).float().to(self.waves.device)
        return self


class Sinusoidal(Waves):
    """Vaswani et al., 2017."""

    def __init__(self, size: PositionSize) -> None:
        super().__init__(size, size.dim)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + sinusoid(positions, self.waves).to(x.dtype)


class Learned(Position):
    """A vector for each position up to a limit (Gehring et al., 2017; BERT; GPT)."""

    def __init__(self, size: PositionSize) -> None:
        super().__init__(size)
        self.limit = size.limit
        self.table = nn.Embedding(size.limit, size.dim)
        nn.init.normal_(self.table.weight, std=0.02)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        vectors: Tensor = self.table(positions)  # (rows or 1, time, dim)
        return x + vectors.to(x.dtype)


class Relative(Position):
    """Shaw et al., 2018: a vector for each clipped distance, added to the keys and to the values.

    e_ij = q_i . (k_j + a_ij) / sqrt(head_dim),   z_i = sum_j w_ij (v_j + b_ij)."""

    def __init__(self, size: PositionSize) -> None:
        super().__init__(size)
        self.clip = size.clip
        self.key = nn.Parameter(torch.empty(2 * size.clip + 1, size.head_dim))
        self.value = nn.Parameter(torch.empty(2 * size.clip + 1, size.head_dim))
        nn.init.xavier_uniform_(self.key)
        nn.init.xavier_uniform_(self.value)

    def index(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        distance = key_positions[:, None, :] - query_positions[:, :, None]  # (rows or 1, query, key)
        return distance.clamp(-self.clip, self.clip) + self.clip

    def bias(self, query: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        index = self.index(query_positions, key_positions)[:, None]  # (rows or 1, 1, query, key)
        scores = query @ self.key.to(query.dtype).T / math.sqrt(query.shape[-1])  # (rows, heads, query, distances)
        return scores.gather(-1, index.expand(*scores.shape[:2], -1, -1))  # (rows, heads, query, key)

    def mix(self, weights: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        index = self.index(query_positions, key_positions)[:, None].expand_as(weights)
        by_distance = weights.new_zeros(*weights.shape[:3], len(self.value)).scatter_add(-1, index, weights)
        return by_distance @ self.value.to(weights.dtype)  # (rows, heads, query, head_dim)


class Buckets(Position):
    """T5 (Raffel et al., 2020): a learned number for each head and bucket of distances, fine near, logarithmic far."""

    buckets, farthest = 32, 128

    def __init__(self, size: PositionSize) -> None:
        super().__init__(size)
        self.reads_ahead = size.reads_ahead
        self.table = nn.Embedding(self.buckets, size.heads)
        nn.init.normal_(self.table.weight, std=size.dim**-0.5)

    def bucket(self, distance: Tensor) -> Tensor:
        """distance = key - query; half of the buckets are for keys ahead where the stack can see them."""
        buckets = self.buckets // 2 if self.reads_ahead else self.buckets
        offset = (distance > 0).long() * buckets if self.reads_ahead else 0
        away = distance.abs() if self.reads_ahead else (-distance).clamp(min=0)
        exact = buckets // 2
        far = torch.log(away.clamp(min=1).float() / exact) / math.log(self.farthest / exact) * (buckets - exact)
        return offset + torch.where(away < exact, away, (exact + far.long()).clamp(max=buckets - 1))

    def bias(self, query: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        distance = key_positions[:, None, :] - query_positions[:, :, None]  # (rows or 1, query, key)
        values: Tensor = self.table(self.bucket(distance))[..., : query.shape[1]]  # (rows or 1, query, key, heads)
        return values.permute(0, 3, 1, 2).to(query.dtype)


class Rotary(Waves):
    """Su et al., 2021: turn each pair of a query or key by position x w_k, so that their product sees the distance."""

    def __init__(self, size: PositionSize) -> None:
        super().__init__(size, size.head_dim)

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        angles = positions[:, None, :, None].float() * self.waves  # (rows or 1, 1, time, head_dim / 2)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


class Alibi(Position):
    """Press et al., 2022: each head subtracts its own slope times the distance; nothing is learned."""

    @staticmethod
    def slopes(heads: int, device: torch.device | None = None) -> Tensor:
        """2^(-8/n), 2^(-16/n), … for n heads; where n is no power of two, filled up from the next power's odd ones."""
        power = 2 ** math.floor(math.log2(max(heads, 1)))
        order = torch.arange(heads, device=device)
        return torch.exp2(-8 / power * torch.where(order < power, order + 1.0, order - power + 0.5))

    def bias(self, query: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        slopes = self.slopes(query.shape[1], query.device)
        distance = (key_positions[:, None, :] - query_positions[:, :, None]).abs()  # (rows or 1, query, key)
        return (-distance[:, None] * slopes[:, None, None]).to(query.dtype)


class Concatenated(Position):
    """W [x; p] instead of x + p, p being what the scheme would have added."""

    def __init__(self, size: PositionSize, scheme: Position) -> None:
        super().__init__(size)
        self.scheme = scheme
        self.limit = scheme.limit
        self.join = linear(2 * size.dim, size.dim)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        vectors = self.scheme.embed(torch.zeros_like(x), positions)
        joined: Tensor = self.join(torch.cat((x, vectors), dim=-1))
        return joined


def make_attention_bias(
    position: Position,
    query: Tensor,
    query_positions: Tensor,
    key_positions: Tensor,
    mask: Tensor | None,
    *,
    causal: bool = False,
) -> AttentionBias:
    """What a position scheme adds to where one may look."""
    bias = position.bias(query, query_positions, key_positions)
    mix = (lambda weights: position.mix(weights, query_positions, key_positions)) if position.mixes else None
    return AttentionBias(mask, causal, bias, mix)


POSITIONS: dict[str, type[Position]] = {
    "none": Position,
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "relative": Relative,
    "t5": Buckets,
    "rotary": Rotary,
    "alibi": Alibi,
}
EMBEDDED = [name for name, scheme in POSITIONS.items() if scheme.embed is not Position.embed]  # can be concatenated
