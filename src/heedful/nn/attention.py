"""Attention: a soft look-up. Each query takes the mean of the values, weighted by how well their keys fit it.

    attend(q, k, v) = softmax(q k^T / sqrt(head_dim) + bias, masked) v          (Vaswani et al., 2017)

The fused kernel computes the output. When somebody records, the weights are computed beside it and the output keeps its
bits; only when somebody may change the weights, or a position scheme mixes them into the output, is the sum taken
explicitly. A query that may look nowhere gets zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from heedful.nn import kernels
from heedful.nn.hooks import HookPoint
from heedful.nn.linear import linear
from heedful.nn.short_sequence_attention import fits_short_sequences, short_sequence_attention

Mix = Callable[[Tensor], Tensor | None]


class AttentionBias(NamedTuple):
    """Where the queries may look and what is added to their scores. All None: everywhere, nothing."""

    mask: Tensor | None = None  # (rows or 1, 1, query, key), True where looking is allowed
    causal: bool = False  # query i sees keys 0..i; said so, and not by a mask, the fused kernel is quicker
    bias: Tensor | None = None  # (rows or 1, heads, query, key), added to the scaled scores
    mix: Mix | None = None  # weights -> what to add to the output


def attention_weights(query: Tensor, key: Tensor, attention_bias: AttentionBias) -> Tensor:
    """(rows, heads, query, head_dim), (rows, heads, key, head_dim) -> (rows, heads, query, key); rows sum to 1 or 0."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    if attention_bias.bias is not None:
        scores = scores + attention_bias.bias
    mask = attention_bias.mask
    if attention_bias.causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if mask is None:
        return scores.softmax(-1)
    return scores.masked_fill(~mask, -math.inf).softmax(-1).masked_fill(~mask, 0.0)


def fused(query: Tensor, key: Tensor, value: Tensor, attention_bias: AttentionBias, dropout: float) -> Tensor:
    """The same sum by a fused kernel."""
    mask, causal = attention_bias.mask, attention_bias.causal
    if attention_bias.bias is None and not causal and not dropout and kernels.fits_short_attention(query, key, value):
        return kernels.short_attention(query, key, value, mask)
    if attention_bias.bias is None and not dropout and fits_short_sequences(query, key, value):
        found: Tensor = short_sequence_attention(query, key, value, mask, causal)
        return found
    if query.device.type == "cpu" and query.dtype is not torch.float32 and torch.is_grad_enabled():
        wide = AttentionBias(mask, causal, None if attention_bias.bias is None else attention_bias.bias.float())
        with torch.autocast("cpu", enabled=False):  # its backward pass in half precision takes three times as long
            return fused(query.float(), key.float(), value.float(), wide, dropout).to(query.dtype)
    if attention_bias.bias is not None:
        mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril() if causal else mask
        causal = False
        mask = attention_bias.bias if mask is None else attention_bias.bias.masked_fill(~mask, -math.inf)
    return functional.scaled_dot_product_attention(query, key, value, mask, dropout_p=dropout, is_causal=causal)


class AttentionCore(nn.Module):
    """The look-up itself, all heads at once, with its two taps: the weights, and what each head found."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.weights = (
            HookPoint()
        )  # (rows, heads, query, key); while searching (sources, heads, rows of the source x query, key)
        self.context = HookPoint()  # (rows, heads, query, head_dim), likewise

    def forward(self, query: Tensor, key: Tensor, value: Tensor, attention_bias: AttentionBias) -> Tensor:
        """query (rows, heads, query, head_dim), key and value (rows, heads, key, head_dim) -> as query."""
        dropout = self.dropout if self.training else 0.0
        if attention_bias.mix is not None or self.weights.changes:
            weights = functional.dropout(self.weights(attention_weights(query, key, attention_bias)), dropout)
            out = weights @ value
            added = None if attention_bias.mix is None else attention_bias.mix(weights)
            return self.context(out if added is None else out + added)
        out = fused(query, key, value, attention_bias, dropout)
        if self.weights.wanted:
            self.weights(attention_weights(query, key, attention_bias))
        return self.context(out)

    if TYPE_CHECKING:
        __call__ = forward


def split_heads(x: Tensor, heads: int) -> Tensor:
    return x.view(*x.shape[:-1], heads, -1).transpose(1, 2)  # (rows, heads, time, head_dim)


def join_heads(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(-2)  # (rows, time, heads x head_dim)


class SelfAttention(nn.Module):
    """Queries, keys and values from one sequence."""

    def __init__(self, dim: int, heads: int, head_dim: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.project = linear(dim, 3 * heads * head_dim, blocks=3)
        core = AttentionCore(dropout)
        self.weights, self.context, self.core = core.weights, core.context, core  # hook points are named after the attention
        self.out = linear(heads * head_dim, dim)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(rows, time, dim) -> query, key, value, each (rows, heads, time, head_dim)."""
        query, key, value = self.project(x).chunk(3, dim=-1)
        return split_heads(query, self.heads), split_heads(key, self.heads), split_heads(value, self.heads)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, attention_bias: AttentionBias) -> Tensor:
        """What `split` gave, the key and value perhaps grown by the past -> (rows, time, dim)."""
        out: Tensor = self.out(join_heads(self.core(query, key, value, attention_bias)))
        return out

    if TYPE_CHECKING:
        __call__ = forward


class CrossAttention(nn.Module):
    """Queries from one sequence; keys and values from another, made once per source."""

    def __init__(self, dim: int, heads: int, head_dim: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.query = linear(dim, heads * head_dim)
        self.memory = linear(dim, 2 * heads * head_dim, blocks=2)
        core = AttentionCore(dropout)
        self.weights, self.context, self.core = core.weights, core.context, core  # hook points are named after the attention
        self.out = linear(heads * head_dim, dim)

    def remember(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """(sources, time, dim) -> keys and values (sources, heads, time, head_dim)."""
        key, value = self.memory(source).chunk(2, dim=-1)
        return split_heads(key, self.heads), split_heads(value, self.heads)

    def forward(self, x: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """x (sources, time, dim), key and value as remembered, mask (sources, 1, 1, key) -> (sources, time, dim)."""
        found = self.core(split_heads(self.query(x), self.heads), key, value, AttentionBias(mask))
        out: Tensor = self.out(join_heads(found))
        return out

    if TYPE_CHECKING:
        __call__ = forward


class NoHeads(nn.Module):
    """What is left of self- or cross-attention without any head: the bias of the map that joined them."""

    heads = 0

    def __init__(self, dim: int, head_dim: int) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.bias = nn.Parameter(torch.zeros(dim))

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        nothing = x.new_zeros(x.shape[0], 0, x.shape[1], self.head_dim)  # (rows, no heads, time, head_dim)
        return nothing, nothing, nothing

    def remember(self, source: Tensor) -> tuple[Tensor, Tensor]:
        return self.split(source)[:2]

    def forward(self, x: Tensor, key: Tensor, value: Tensor, attention_bias: AttentionBias | Tensor | None) -> Tensor:
        """x: what asks, (rows, time, dim) or (rows, no heads, time, head_dim) -> (rows, time, dim)."""
        return self.bias.expand(x.shape[0], x.shape[-2], -1)

    if TYPE_CHECKING:
        __call__ = forward


def self_attention(dim: int, heads: int, head_dim: int, dropout: float) -> SelfAttention | NoHeads:
    return SelfAttention(dim, heads, head_dim, dropout) if heads else NoHeads(dim, head_dim)


def cross_attention(dim: int, heads: int, head_dim: int, dropout: float) -> CrossAttention | NoHeads:
    return CrossAttention(dim, heads, head_dim, dropout) if heads else NoHeads(dim, head_dim)
