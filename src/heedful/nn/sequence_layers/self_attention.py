"""Attention as a sequence layer: to all tokens, to those in a window, or without parameters.

Token by token, keys and values are written into slots, and each row attends to the slots that it owns.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from heedful.nn import masks
from heedful.nn.attention import AttentionBias, SelfAttention, fused_attention, join_heads
from heedful.nn.banded import Band, cut_keys, cut_mask, cut_queries, join_blocks
from heedful.nn.decoder_state import Tree, write
from heedful.nn.sequence_layers.base import LayerSize, LayerState, SequenceLayer
from heedful.nn.step_context import StepContext
from heedful.nn.structure import join


class FullAttention(SequenceLayer):
    """Multi-head self-attention: every token attends to every other."""

    cost, options = "n^2 d", ("heads",)
    remark = "four projections, hence 8 n d^2"

    def __init__(self, size: LayerSize) -> None:
        super().__init__(size)
        self.self_attention = SelfAttention(size.dim, size.heads, size.dim // size.heads, dropout=0.0)

    def attention(self) -> SelfAttention:
        return self.self_attention

    def mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return self.self_attention(*self.self_attention.split(x), make_bias(x, mask, causal=self.size.causal))

    def mix_within(self, x: Tensor, mask: Tensor | None, structure: AttentionBias) -> Tensor:
        assert not self.size.causal, "the structure of a causal layer is its own"
        return self.self_attention(*self.self_attention.split(x), join(make_bias(x, mask, causal=False), structure))

    def slots(self, sources: int, room: int, like: Tensor) -> Tree:
        return key_slots(self.size, sources, room, like)

    def mix_step(self, x: Tensor, state: LayerState, step: StepContext) -> tuple[Tensor, Tree]:
        return attend_to_cache(self.self_attention, x, state, step), None

    @staticmethod
    def operations(size: LayerSize, time: int) -> int:
        return time * time * size.dim

    @staticmethod
    def products(*, causal: bool) -> str:
        return "8 n d^2 + 4 n^2 d"


def make_bias(x: Tensor, mask: Tensor | None, *, causal: bool) -> AttentionBias:
    """Attention to all real tokens, or to those up to the query."""
    if mask is None:
        return AttentionBias(causal=causal)
    real = mask[:, None, None, :]  # (rows, 1, 1, key)
    if not causal:
        return AttentionBias(real)
    places = torch.arange(x.shape[1], device=x.device)[None]
    return AttentionBias(real & masks.causal(places, places))  # (rows, 1, query, key)


def key_slots(size: LayerSize, sources: int, room: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Caches of keys and values; zeros, since empty slots are multiplied by attention weights of zero."""
    shape = (sources, room, size.heads, size.dim // size.heads)
    return like.new_zeros(shape), like.new_zeros(shape)


def attend_to_cache(
    attention: SelfAttention, x: Tensor, state: LayerState, step: StepContext, near: Tensor | None = None
) -> Tensor:
    """Write keys and values of x (rows, time, dim) to the cache, attend to it; near: a further mask (sources, new, slots)."""
    assert step.mask is not None, "a step after others has a mask"
    mask = step.mask if near is None else step.mask & near  # (sources, new, slots)
    query, key, value = attention.split(step.group_by_source(x))  # (sources, heads, new, head_dim)
    keys, values = step.append(state.kv_cache, key.transpose(1, 2), value.transpose(1, 2))
    return attention(query, keys, values, AttentionBias(mask[:, None])).view_as(x)  # (sources, new, dim) -> as x


class RestrictedAttention(SequenceLayer):
    """Self-attention within a window: to the last r tokens, or to those at most r / 2 away."""

    cost, path, options = "r n d", "n / r", ("heads", "window")
    remark = "four projections; in blocks of r queries, with the 2 r keys (causal: 2 r - 1) in the window of at least one"

    def __init__(self, size: LayerSize) -> None:
        super().__init__(size)
        self.self_attention = SelfAttention(size.dim, size.heads, size.dim // size.heads, dropout=0.0)

    def attention(self) -> SelfAttention:
        return self.self_attention

    def mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        rows, time, _ = x.shape
        real = torch.ones(rows, time, dtype=torch.bool, device=x.device) if mask is None else mask
        query, key, value = self.self_attention.split(x)
        core, whole = self.self_attention.core, torch.compiler.is_exporting()  # the number of blocks depends on the length
        context = None
        if whole or core.weights.has_hooks or core.context.has_hooks:  # hooks get the weights of whole sequences
            context = join_heads(core(query, key, value, AttentionBias(self.window_mask(real))))  # (rows, time, dim)
        if context is None or not (whole or core.weights.changes or core.context.changes):
            context = self.attend_in_blocks((query, key, value), real)
        out: Tensor = self.self_attention.out(context)
        return out

    def attend_in_blocks(self, qkv: tuple[Tensor, Tensor, Tensor], real: Tensor) -> Tensor:
        """Query, key and value (rows, heads, time, head_dim), real (rows, time) -> context vectors (rows, time, dim)."""
        band = Band(real.shape[1], self.size.window, self.size.causal)
        query, key, value = qkv
        blocks = cut_queries(query, band), cut_keys(key, band), cut_keys(value, band)
        context = fused_attention(
            *blocks, AttentionBias(cut_mask(real, band)), dropout=0.0
        )  # (rows x blocks, heads, block, head_dim)
        return join_blocks(join_heads(context), band)

    def window_mask(self, real: Tensor) -> Tensor:
        """Padding mask (rows, time) -> attention mask (rows, 1, query, key)."""
        places = torch.arange(real.shape[1], device=real.device)[None]
        near = masks.causal_window if self.size.causal else masks.window
        return (near(places, places, self.size.window) & real[:, None])[:, None]

    def slots(self, sources: int, room: int, like: Tensor) -> Tree:
        return key_slots(self.size, sources, room, like)

    def mix_step(self, x: Tensor, state: LayerState, step: StepContext) -> tuple[Tensor, Tree]:
        near = masks.causal_window(step.query_positions, step.key_positions, self.size.window)
        return attend_to_cache(self.self_attention, x, state, step, near), None

    @staticmethod
    def operations(size: LayerSize, time: int) -> int:
        return size.window * time * size.dim

    @staticmethod
    def products(*, causal: bool) -> str:
        return "8 n d^2 + 8 r n d - 4 n d" if causal else "8 n d^2 + 8 r n d"


class ParameterFreeAttention(SequenceLayer):
    """Every output is the mean of all inputs, weighted by softmax(x x^T): no parameters."""

    cost = "n^2 d"

    def mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return parameter_free_attention(x, x, make_bias(x, mask, causal=self.size.causal))

    def slots(self, sources: int, room: int, like: Tensor) -> Tree:
        return like.new_zeros(sources, room, self.size.dim)

    def mix_step(self, x: Tensor, state: LayerState, step: StepContext) -> tuple[Tensor, Tree]:
        new = step.group_by_source(x)
        assert step.slots is not None and step.mask is not None, "a step after others has slots and a mask"
        keys = write(state.kv_cache, step.slots, new.to(state.kv_cache.dtype))  # (sources, slots, dim)
        return parameter_free_attention(new, keys, AttentionBias(step.mask[:, None])).view_as(x), None

    @staticmethod
    def operations(size: LayerSize, time: int) -> int:
        return time * time * size.dim

    @staticmethod
    def products(*, causal: bool) -> str:
        return "4 n^2 d"


def parameter_free_attention(queries: Tensor, keys: Tensor, attention_bias: AttentionBias) -> Tensor:
    """softmax(queries keys^T) keys: (rows, query, dim), (rows, key, dim) -> (rows, query, dim)."""
    query, key = queries[:, None], keys[:, None].to(queries.dtype)  # (rows, 1, time, dim)
    return functional.scaled_dot_product_attention(
        query, key, key, attention_bias.mask, is_causal=attention_bias.causal, scale=1.0
    )[:, 0]
