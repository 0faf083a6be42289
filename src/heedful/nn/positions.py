"""Positional encodings.

Positions are passed explicitly, (rows or 1, time), because prompts, prefixes and refilled batches start at any position.
A scheme overrides any of four methods of `Position`; the rest do nothing:

    embed   add to the embeddings                     sinusoidal, learned
    rotate  rotate queries and keys                   rotary
    bias    add to the attention scores               relative, t5, alibi
    mix     add to the weighted sum of the values     relative

All layers of a stack share one instance; cross-attention has none.
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
    """Sizes of the stack that a scheme belongs to."""

    dim: int
    heads: int  # maximum number of heads in a layer
    head_dim: int
    limit: int  # number of learned positions
    clip: int  # maximum distance that relative positions distinguish
    reads_ahead: bool  # True in an encoder, where tokens attend to later tokens


class PatchGrid(NamedTuple):
    """Positions that are the patches of an image, row by row."""

    down: int  # rows
    across: int  # columns
    before: int = 0  # positions before the patches: 1 with [CLS]

    @property
    def positions(self) -> int:
        return self.before + self.down * self.across


class Position(nn.Module):
    """No positional encoding: attention is invariant to the order of its keys, except for a causal mask."""

    limit: int | None = None  # maximum number of positions; None: unlimited
    grid: PatchGrid | None = None  # of the patches of an image; None: positions are a sequence

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
        """query: (rows, heads, query, head_dim) -> summand of the scaled scores (rows or 1, heads, query, key)."""
        return None

    def mix(self, weights: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor | None:
        """weights: (rows, heads, query, key) -> summand of the output (rows, heads, query, head_dim)."""
        return None

    @property
    def mixes(self) -> bool:
        """Whether `mix` needs the attention weights, which the fused kernel does not return."""
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
    """Base of schemes with sines and cosines. Frequencies stay in single precision when a model is cast to half."""

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
    """T5 (Raffel et al., 2020): a learned bias for each head and bucket of distances; buckets grow logarithmically."""

    buckets, farthest = 32, 128

    def __init__(self, size: PositionSize) -> None:
        super().__init__(size)
        self.reads_ahead = size.reads_ahead
        self.table = nn.Embedding(self.buckets, size.heads)
        nn.init.normal_(self.table.weight, std=size.dim**-0.5)

    def bucket(self, distance: Tensor) -> Tensor:
        """distance = key - query; in an encoder half of the buckets are for later keys."""
        buckets = self.buckets // 2 if self.reads_ahead else self.buckets
        offset = (distance > 0).long() * buckets if self.reads_ahead else 0
        absolute = distance.abs() if self.reads_ahead else (-distance).clamp(min=0)
        exact = buckets // 2
        far = torch.log(absolute.clamp(min=1).float() / exact) / math.log(self.farthest / exact) * (buckets - exact)
        return offset + torch.where(absolute < exact, absolute, (exact + far.long()).clamp(max=buckets - 1))

    def bias(self, query: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        distance = key_positions[:, None, :] - query_positions[:, :, None]  # (rows or 1, query, key)
        values: Tensor = self.table(self.bucket(distance))[..., : query.shape[1]]  # (rows or 1, query, key, heads)
        return values.permute(0, 3, 1, 2).to(query.dtype)


class Rotary(Waves):
    """Su et al., 2021: rotate each pair of dimensions of a query or key by position x w_k, so that their product depends on
    the distance."""

    def __init__(self, size: PositionSize) -> None:
        super().__init__(size, size.head_dim)

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        angles = positions[:, None, :, None].float() * self.waves  # (rows or 1, 1, time, head_dim / 2)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


class Alibi(Position):
    """Press et al., 2022: each head subtracts its own slope times the distance; no parameters."""

    @staticmethod
    def slopes(heads: int, device: torch.device | None = None) -> Tensor:
        """2^(-8/n), 2^(-16/n), … for n heads; if n is no power of two, the rest are odd slopes of the next power."""
        power = 2 ** math.floor(math.log2(max(heads, 1)))
        order = torch.arange(heads, device=device)
        return torch.exp2(-8 / power * torch.where(order < power, order + 1.0, order - power + 0.5))

    def bias(self, query: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        slopes = self.slopes(query.shape[1], query.device)
        distance = (key_positions[:, None, :] - query_positions[:, :, None]).abs()  # (rows or 1, query, key)
        return (-distance[:, None] * slopes[:, None, None]).to(query.dtype)


class Concatenated(Position):
    """W [x; p] instead of x + p, where p is the positional vector of a scheme."""

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
    bias: Tensor | None = None,
) -> AttentionBias:
    """Combine a mask and a bias with the bias of a position scheme."""
    own = position.bias(query, query_positions, key_positions)
    if own is not None:
        bias = own if bias is None else own + bias
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
