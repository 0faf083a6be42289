"""Attention: a mean of the values for each query, weighted by how well their keys match it.

    attend(q, k, v) = softmax(q k^T / sqrt(head_dim) + bias, masked) v          (Vaswani et al., 2017)

A fused kernel computes the output. Where a hook records the weights, they are computed in addition, and the output stays
bit-identical. The weighted sum is computed explicitly only where a hook may change the weights or a position scheme adds
to the output by `mix`. The output of a query whose keys are all masked is zero.
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
    """Mask and bias of attention scores. The default masks nothing and adds nothing."""

    mask: Tensor | None = None  # (rows or 1, 1, query, key), True where attention is allowed
    causal: bool = False  # query i attends to keys 0..i; the fused kernel is faster with this flag than with a mask
    bias: Tensor | None = None  # (rows or 1, heads, query, key), added to the scaled scores
    mix: Mix | None = None  # attention weights -> summand of the output


def attention_weights(query: Tensor, key: Tensor, attention_bias: AttentionBias) -> Tensor:
    """(rows, heads, query, head_dim), (rows, heads, key, head_dim) -> (rows, heads, query, key).

    The weights of a query sum to 1, or to 0 where all its keys are masked."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    if attention_bias.bias is not None:
        scores = scores + attention_bias.bias
    mask = attention_bias.mask
    if attention_bias.causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if mask is None:
        return scores.softmax(-1)
    return scores.masked_fill(~mask, -math.inf).softmax(-1).masked_fill(~mask, 0.0)


def fused_attention(query: Tensor, key: Tensor, value: Tensor, attention_bias: AttentionBias, dropout: float) -> Tensor:
    """The weighted sum of the values, computed by the fused kernel that suits device, precision and lengths."""
    mask, causal = attention_bias.mask, attention_bias.causal
    if attention_bias.bias is None and not causal and not dropout and kernels.fits_short_attention(query, key, value):
        return kernels.short_attention(query, key, value, mask)
    if attention_bias.bias is None and not dropout and fits_short_sequences(query, key, value):
        out: Tensor = short_sequence_attention(query, key, value, mask, causal)
        return out
    if query.device.type == "cpu" and query.dtype is not torch.float32 and torch.is_grad_enabled():
        wide = AttentionBias(mask, causal, None if attention_bias.bias is None else attention_bias.bias.float())
        with torch.autocast("cpu", enabled=False):  # the backward pass in half precision takes three times as long
            return fused_attention(query.float(), key.float(), value.float(), wide, dropout).to(query.dtype)
    if attention_bias.bias is not None:
        mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril() if causal else mask
        causal = False
        bias = attention_bias.bias.to(query.dtype)
        mask = bias if mask is None else bias.masked_fill(~mask, -math.inf)
    return functional.scaled_dot_product_attention(query, key, value, mask, dropout_p=dropout, is_causal=causal)


class AttentionCore(nn.Module):
    """Attention of all heads without projections, with two hook points: the weights and each head's context vectors."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.weights = HookPoint()  # (rows, heads, query, key); in search (sources, heads, rows of the source x query, key)
        self.context = HookPoint()  # (rows, heads, query, head_dim); in search as above

    def forward(self, query: Tensor, key: Tensor, value: Tensor, attention_bias: AttentionBias) -> Tensor:
        """query (rows, heads, query, head_dim), key and value (rows, heads, key, head_dim) -> as query."""
        dropout = self.dropout if self.training else 0.0
        if attention_bias.mix is not None or self.weights.changes:
            weights = functional.dropout(self.weights(attention_weights(query, key, attention_bias)), dropout)
            out = weights @ value
            mixed = None if attention_bias.mix is None else attention_bias.mix(weights)
            return self.context(out if mixed is None else out + mixed)
        out = fused_attention(query, key, value, attention_bias, dropout)
        if self.weights.has_hooks:
            self.weights(attention_weights(query, key, attention_bias))
        return self.context(out)

    if TYPE_CHECKING:
        __call__ = forward


def split_heads(x: Tensor, heads: int) -> Tensor:
    return x.view(*x.shape[:-1], heads, -1).transpose(1, 2)  # (rows, heads, time, head_dim)


def join_heads(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(-2)  # (rows, time, heads x head_dim)


class SelfAttention(nn.Module):
    """Multi-head attention with queries, keys and values from one sequence."""

    def __init__(self, dim: int, heads: int, head_dim: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.project = linear(dim, 3 * heads * head_dim, blocks=3)
        core = AttentionCore(dropout)
        self.weights, self.context, self.core = core.weights, core.context, core  # hook points are named after the attention
        self.out = linear(heads * head_dim, dim)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(rows, time, dim) -> query, key, value, each (rows, heads, time, head_dim)."""
        return self.split_projected(self.project(x))

    def split_projected(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(rows, time, 3 x heads x head_dim) -> as `split`."""
        query, key, value = x.chunk(3, dim=-1)
        return split_heads(query, self.heads), split_heads(key, self.heads), split_heads(value, self.heads)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, attention_bias: AttentionBias) -> Tensor:
        """query, key and value from `split`, the latter two optionally with cached ones -> (rows, time, dim)."""
        out: Tensor = self.out(join_heads(self.core(query, key, value, attention_bias)))
        return out

    if TYPE_CHECKING:
        __call__ = forward


class CrossAttention(nn.Module):
    """Multi-head attention with queries from the target; keys and values are computed once per source."""

    def __init__(self, dim: int, heads: int, head_dim: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.query = linear(dim, heads * head_dim)
        self.memory = linear(dim, 2 * heads * head_dim, blocks=2)
        core = AttentionCore(dropout)
        self.weights, self.context, self.core = core.weights, core.context, core  # hook points are named after the attention
        self.out = linear(heads * head_dim, dim)

    def project_memory(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """(sources, time, dim) -> keys and values (sources, heads, time, head_dim)."""
        key, value = self.memory(source).chunk(2, dim=-1)
        return split_heads(key, self.heads), split_heads(value, self.heads)

    def forward(self, x: Tensor, key: Tensor, value: Tensor, attention_bias: AttentionBias) -> Tensor:
        """x (sources, time, dim), key and value from `project_memory` -> (sources, time, dim)."""
        context = self.core(split_heads(self.query(x), self.heads), key, value, attention_bias)
        out: Tensor = self.out(join_heads(context))
        return out

    if TYPE_CHECKING:
        __call__ = forward


class NoHeads(nn.Module):
    """Self- or cross-attention whose heads have all been pruned: only the bias of the output projection is left."""

    heads = 0

    def __init__(self, dim: int, head_dim: int) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.bias = nn.Parameter(torch.zeros(dim))

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        empty = x.new_zeros(x.shape[0], 0, x.shape[1], self.head_dim)  # (rows, 0 heads, time, head_dim)
        return empty, empty, empty

    def project_memory(self, source: Tensor) -> tuple[Tensor, Tensor]:
        return self.split(source)[:2]

    def forward(self, x: Tensor, key: Tensor, value: Tensor, attention_bias: AttentionBias | None) -> Tensor:
        """x: input of cross-attention (rows, time, dim) or query of self-attention (rows, 0 heads, time, head_dim)
        -> (rows, time, dim)."""
        return self.bias.expand(x.shape[0], x.shape[-2], -1)

    if TYPE_CHECKING:
        __call__ = forward


def self_attention(dim: int, heads: int, head_dim: int, dropout: float) -> SelfAttention | NoHeads:
    return SelfAttention(dim, heads, head_dim, dropout) if heads else NoHeads(dim, head_dim)


def cross_attention(dim: int, heads: int, head_dim: int, dropout: float) -> CrossAttention | NoHeads:
    return CrossAttention(dim, heads, head_dim, dropout) if heads else NoHeads(dim, head_dim)
