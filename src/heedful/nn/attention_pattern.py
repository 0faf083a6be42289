"""Attention patterns of causal layers ("Generating Wikipedia by Summarizing Long Sequences", Liu et al., 2018).

    full         token i attends to tokens j <= i
    local        to those of its own block:                j <= i  and  j // block = i // block
    compressed   keys and values are convolved with stride s:
                 slot c = conv(tokens s c - s + 1 … s c), zeros before the first; token i attends to slots with s c <= i

so a sequence of n tokens has n^2, n x block or n x ceil(n / s) scores. Every token attends to something: slot 0 depends on
the first token alone. The mask depends on positions only, so decoding token by token equals one pass over the sequence. In
decoding, each token writes the slot that ends with it; slots that end at no multiple of s are masked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from heedful.nn import masks
from heedful.nn.attention import AttentionCore
from heedful.nn.positions import Position, make_attention_bias

History = tuple[Tensor, Tensor] | None  # (rows, stride - 1, heads x head_dim): the last keys and values before convolution


class QueryKeyValue(NamedTuple):
    """Projections of a layer's tokens, each (rows, heads, time, head_dim), before positional rotation."""

    query: Tensor
    key: Tensor
    value: Tensor


class PatternCache(NamedTuple):
    """Keys and values of a sequence that later tokens attend to."""

    key: Tensor  # (rows, time, heads, head_dim)
    value: Tensor
    history: History


class FullPattern(nn.Module):
    """Attention to all tokens so far."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.size = size  # of a block or a stride, in tokens

    def forward(
        self, core: AttentionCore, qkv: QueryKeyValue, position: Position, real: Tensor | None
    ) -> tuple[Tensor, PatternCache]:
        """Attention within a whole sequence without cached tokens -> (rows, heads, time, head_dim), and the cache.

        real (rows, time): the padding mask, with padding at the end; None: no padding."""
        positions = torch.arange(qkv.query.shape[2], device=qkv.query.device)[None]  # (1, time)
        query, key = position.rotate(qkv.query, positions), position.rotate(qkv.key, positions)
        mask = None if real is None else masks.causal(positions, positions)[:, None] & real[:, None, None]
        out = core(query, key, qkv.value, make_attention_bias(position, query, positions, positions, mask, causal=real is None))
        return out, PatternCache(key.transpose(1, 2), qkv.value.transpose(1, 2), None)

    def make_cache(self, key: Tensor, value: Tensor, history: History, real: Tensor | None) -> PatternCache:
        """New keys and values (rows, time, heads, head_dim) -> as they are cached."""
        return PatternCache(key, value, history)

    def restrict_mask(self, mask: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """mask (sources, query, key): causal -> the mask of this pattern."""
        return mask

    def initial_state(self, rows: int, like: Tensor) -> History:
        """The history of an empty sequence."""
        return None

    if TYPE_CHECKING:
        __call__ = forward


class LocalPattern(FullPattern):
    """Attention to the tokens so far of the query's own block."""

    def forward(
        self, core: AttentionCore, qkv: QueryKeyValue, position: Position, real: Tensor | None
    ) -> tuple[Tensor, PatternCache]:
        rows, heads, time, _ = qkv.query.shape
        if time <= self.size:
            return super().forward(core, qkv, position, real)
        missing = -time % self.size
        positions = torch.arange(time, device=qkv.query.device)[None]
        query, key = position.rotate(qkv.query, positions), position.rotate(qkv.key, positions)

        def cut(x: Tensor) -> Tensor:
            blocks = functional.pad(x, (0, 0, 0, missing)).view(rows, heads, -1, self.size, x.shape[-1])
            return blocks.transpose(1, 2).flatten(0, 1)  # (rows x blocks, heads, block, head_dim)

        inside = positions[:, : self.size]  # biases depend on distances, which are the same in every block
        mask = None
        if real is not None:
            real_keys = functional.pad(real, (0, missing)).view(-1, 1, self.size)  # (rows x blocks, 1, block)
            itself = torch.eye(self.size, dtype=torch.bool, device=real.device)  # so that no query has all keys masked
            mask = (masks.causal(inside, inside) & (real_keys | itself))[:, None]
        query = cut(query)
        blocks = core(
            query, cut(key), cut(qkv.value), make_attention_bias(position, query, inside, inside, mask, causal=mask is None)
        )
        out = blocks.view(rows, -1, heads, self.size, blocks.shape[-1]).transpose(1, 2).flatten(2, 3)[:, :, :time]
        return out, PatternCache(key.transpose(1, 2), qkv.value.transpose(1, 2), None)

    def restrict_mask(self, mask: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        return mask & (query_positions[:, :, None] // self.size == key_positions[:, None, :] // self.size)


class CompressedPattern(FullPattern):
    """Attention to slots, each a convolution of `stride` tokens."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__(width, size)
        self.key, self.value = (nn.Conv1d(width, width, size, size) for _ in range(2))
        for convolution in (self.key, self.value):
            nn.init.normal_(convolution.weight, std=(size * width) ** -0.5)
            assert convolution.bias is not None
            nn.init.zeros_(convolution.bias)

    def forward(
        self, core: AttentionCore, qkv: QueryKeyValue, position: Position, real: Tensor | None
    ) -> tuple[Tensor, PatternCache]:
        rows, _, time, _ = qkv.query.shape
        positions = torch.arange(time, device=qkv.query.device)[None]
        ends = positions[:, :: self.size]  # (1, slots) where each slot ends
        key, value = self.convolve(self.key, qkv.key), self.convolve(self.value, qkv.value)  # (rows, heads, slots, head_dim)
        query, key = position.rotate(qkv.query, positions), position.rotate(key, ends)
        mask = masks.causal(positions, ends)[:, None]  # (1, 1, time, slots)
        if real is not None:
            mask = mask & real[:, None, None, :: self.size]
        out = core(query, key, value, make_attention_bias(position, query, positions, ends, mask))
        lengths = torch.full((rows,), time, device=query.device) if real is None else real.sum(-1)
        history = self.last(qkv.key, lengths), self.last(qkv.value, lengths)
        return out, PatternCache(self.scatter_slots(key, time), self.scatter_slots(value, time), history)

    def convolve(self, convolution: nn.Conv1d, x: Tensor) -> Tensor:
        """(rows, heads, time, head_dim) -> (rows, heads, slots, head_dim)."""
        channels = x.transpose(2, 3).flatten(1, 2)  # (rows, heads x head_dim, time)
        slots: Tensor = convolution(functional.pad(channels, (self.size - 1, 0)))
        return slots.view(*x.shape[:2], -1, slots.shape[-1]).transpose(2, 3)

    def scatter_slots(self, slots: Tensor, time: int) -> Tensor:
        """Place slots at their last tokens, zeros between: (rows, heads, slots, head_dim) -> (rows, time, heads, head_dim)."""
        spaced = functional.pad(slots.transpose(1, 2)[:, :, None], (0, 0, 0, 0, 0, self.size - 1))
        return spaced.flatten(1, 2)[:, :time]

    def last(self, x: Tensor, lengths: Tensor) -> Tensor:
        """The last stride - 1 tokens of each row, zeros where there are fewer: (rows, stride - 1, heads x head_dim)."""
        padded = functional.pad(x.transpose(1, 2).flatten(2), (0, 0, self.size - 1, 0))  # (rows, stride - 1 + time, width)
        at = lengths[:, None] + torch.arange(self.size - 1, device=x.device)
        return padded.gather(1, at[..., None].expand(-1, -1, padded.shape[-1]))

    def make_cache(self, key: Tensor, value: Tensor, history: History, real: Tensor | None) -> PatternCache:
        assert history is not None, "compressed attention requires the keys and values of previous tokens"
        keys, last_keys = self.convolve_next(self.key, key, history[0], real)
        values, last_values = self.convolve_next(self.value, value, history[1], real)
        return PatternCache(keys, values, (last_keys, last_values))

    def convolve_next(self, convolution: nn.Conv1d, x: Tensor, before: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
        """The slot that ends with each token of x (rows, time, heads, head_dim), and the history for the next call."""
        joined = torch.cat((before.to(x.dtype), x.flatten(2)), dim=1)  # (rows, stride - 1 + time, width)
        if real is not None:  # move padding behind the real tokens
            kept = functional.pad(real, (self.size - 1, 0), value=True)
            order = (~kept).to(torch.uint8).argsort(dim=1, stable=True)[..., None].expand_as(joined)
            joined = joined.gather(1, order)
        slots = functional.conv1d(joined.transpose(1, 2), convolution.weight, convolution.bias).transpose(1, 2)
        if real is None:
            return slots.reshape(x.shape), joined[:, x.shape[1] :]
        rank = (real.cumsum(-1) - 1).clamp(min=0)[..., None].expand_as(slots)  # (rows, time, width)
        last = real.sum(-1, keepdim=True) + torch.arange(self.size - 1, device=x.device)  # (rows, stride - 1)
        return slots.gather(1, rank).reshape(x.shape), joined.gather(1, last[..., None].expand(-1, -1, joined.shape[-1]))

    def restrict_mask(self, mask: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        return mask & (key_positions % self.size == 0)[:, None, :]

    def initial_state(self, rows: int, like: Tensor) -> History:
        shape = rows, self.size - 1, self.key.in_channels
        return like.new_zeros(shape), like.new_zeros(shape)


PATTERNS: dict[str, type[FullPattern]] = {"full": FullPattern, "local": LocalPattern, "compressed": CompressedPattern}
