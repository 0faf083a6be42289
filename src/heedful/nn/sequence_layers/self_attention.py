"""Attention as a sequence layer: of all tokens, of those in a window, or without any weights.

Whoever is fed token by token writes keys and values into slots, and looks at those that are its own.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from heedful.nn import masks
from heedful.nn.attention import AttentionBias, SelfAttention, fused, join_heads
from heedful.nn.banded import Band, cut_keys, cut_mask, cut_queries, join_blocks
from heedful.nn.decoder_state import Tree, write, write_pair
from heedful.nn.sequence_layers.base import LayerSize, LayerState, SequenceLayer, StepContext


class FullAttention(SequenceLayer):
    """Multi-head self-attention: every token sees every other."""

    cost, takes = "n^2 d", ("heads",)
    remark = "four projections, hence 8 n d^2"

    def __init__(self, size: LayerSize) -> None:
        super().__init__(size)
        self.self_attention = SelfAttention(size.dim, size.heads, size.dim // size.heads, dropout=0.0)

    def mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return self.self_attention(*self.self_attention.split(x), look(x, mask, causal=self.size.causal))

    def slots(self, sources: int, room: int, like: Tensor) -> Tree:
        return key_slots(self.size, sources, room, like)

    def extend(self, x: Tensor, kept: LayerState, now: StepContext) -> tuple[Tensor, Tree]:
        return look_back(self.self_attention, x, kept, now, now.seen), None

    @staticmethod
    def operations(size: LayerSize, time: int) -> int:
        return time * time * size.dim

    @staticmethod
    def products(*, causal: bool) -> str:
        return "8 n d^2 + 4 n^2 d"


def look(x: Tensor, mask: Tensor | None, *, causal: bool) -> AttentionBias:
    """All real tokens, or those up to oneself."""
    if mask is None:
        return AttentionBias(causal=causal)
    real = mask[:, None, None, :]  # (rows, 1, 1, key)
    if not causal:
        return AttentionBias(real)
    places = torch.arange(x.shape[1], device=x.device)[None]
    return AttentionBias(real & masks.causal(places, places))  # (rows, 1, query, key)


def key_slots(size: LayerSize, sources: int, room: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """For keys and values; zeros, as what nobody wrote is multiplied by a weight of zero."""
    shape = (sources, room, size.heads, size.dim // size.heads)
    return like.new_zeros(shape), like.new_zeros(shape)


def look_back(attention: SelfAttention, x: Tensor, kept: LayerState, now: StepContext, seen: Tensor) -> Tensor:
    """x (rows, time, dim), seen (sources, new, slots): new tokens write their keys and values and look at these and the old."""
    query, key, value = attention.split(now.together(x))  # (sources, heads, new, head_dim)
    keys, values = write_pair(kept.kv_cache, now.slots, (key.transpose(1, 2), value.transpose(1, 2)))
    found = attention(query, keys.transpose(1, 2), values.transpose(1, 2), AttentionBias(seen[:, None]))  # (sources, new, dim)
    return found.view_as(x)


class RestrictedAttention(SequenceLayer):
    """Self-attention that sees a window: the last r tokens, or those at most r / 2 away."""

    cost, path, takes = "r n d", "n / r", ("heads", "window")
    remark = "four projections; in blocks of r queries, each before the 2 r keys (causal: 2 r - 1) that one of them may see"

    def __init__(self, size: LayerSize) -> None:
        super().__init__(size)
        self.self_attention = SelfAttention(size.dim, size.heads, size.dim // size.heads, dropout=0.0)

    def mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        rows, time, _ = x.shape
        real = torch.ones(rows, time, dtype=torch.bool, device=x.device) if mask is None else mask
        query, key, value = self.self_attention.split(x)
        heads, whole = (
            self.self_attention.core,
            torch.compiler.is_exporting(),
        )  # how many blocks there are depends on the length
        heard = None
        if whole or heads.weights.wanted or heads.context.wanted:  # listeners hear of whole sequences
            heard = join_heads(heads(query, key, value, AttentionBias(self.within(real))))  # (rows, time, dim)
        if heard is None or not (whole or heads.weights.changes or heads.context.changes):
            heard = self.by_blocks((query, key, value), real)
        out: Tensor = self.self_attention.out(heard)
        return out

    def by_blocks(self, looks: tuple[Tensor, Tensor, Tensor], real: Tensor) -> Tensor:
        """Query, key and value (rows, heads, time, head_dim), real (rows, time) -> what was found (rows, time, dim)."""
        band = Band(real.shape[1], self.size.window, self.size.causal)
        query, key, value = looks
        blocks = cut_queries(query, band), cut_keys(key, band), cut_keys(value, band)
        found = fused(*blocks, AttentionBias(cut_mask(real, band)), dropout=0.0)  # (rows x blocks, heads, block, head_dim)
        return join_blocks(join_heads(found), band)

    def within(self, real: Tensor) -> Tensor:
        """Which keys are real (rows, time) -> which of all a query may see (rows, 1, query, key)."""
        places = torch.arange(real.shape[1], device=real.device)[None]
        near = masks.causal_window if self.size.causal else masks.window
        return (near(places, places, self.size.window) & real[:, None])[:, None]

    def slots(self, sources: int, room: int, like: Tensor) -> Tree:
        return key_slots(self.size, sources, room, like)

    def extend(self, x: Tensor, kept: LayerState, now: StepContext) -> tuple[Tensor, Tree]:
        near = masks.causal_window(now.positions, now.key_positions, self.size.window)
        return look_back(self.self_attention, x, kept, now, now.seen & near), None

    @staticmethod
    def operations(size: LayerSize, time: int) -> int:
        return size.window * time * size.dim

    @staticmethod
    def products(*, causal: bool) -> str:
        return "8 n d^2 + 8 r n d - 4 n d" if causal else "8 n d^2 + 8 r n d"


class ParameterFreeAttention(SequenceLayer):
    """Every token becomes the mean of all, weighted by softmax(x x^T): nothing to learn but what comes before it."""

    cost = "n^2 d"

    def mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return mean_of_all(x, x, look(x, mask, causal=self.size.causal))

    def slots(self, sources: int, room: int, like: Tensor) -> Tree:
        return like.new_zeros(sources, room, self.size.dim)

    def extend(self, x: Tensor, kept: LayerState, now: StepContext) -> tuple[Tensor, Tree]:
        new = now.together(x)
        there = write(kept.kv_cache, now.slots, new.to(kept.kv_cache.dtype))  # (sources, slots, dim)
        return mean_of_all(new, there, AttentionBias(now.seen[:, None])).view_as(x), None

    @staticmethod
    def operations(size: LayerSize, time: int) -> int:
        return time * time * size.dim

    @staticmethod
    def products(*, causal: bool) -> str:
        return "4 n^2 d"


def mean_of_all(x: Tensor, there: Tensor, attention_bias: AttentionBias) -> Tensor:
    """softmax(x there^T) there: (rows, query, dim), (rows, key, dim) -> (rows, query, dim)."""
    one_head, all_there = x[:, None], there[:, None].to(x.dtype)  # (rows, 1, time, dim)
    return functional.scaled_dot_product_attention(
        one_head, all_there, all_there, attention_bias.mask, is_causal=attention_bias.causal, scale=1.0
    )[:, 0]
