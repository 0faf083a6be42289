"""How far back a causal layer looks ("Generating Wikipedia by Summarizing Long Sequences", Liu et al., 2018).

    full         token i sees the tokens j <= i
    local        those of its own block:                j <= i  and  j // block = i // block
    compressed   keys and values are convolved, as many at a time as the stride s says:
                 slot c = conv(tokens s c - s + 1 … s c), zeros before the first; token i sees the slots with s c <= i

so a sequence of n tokens has n^2, n x block or n x ceil(n / s) scores. Every token sees something: slot 0 is made of the
first token alone. What a token may see depends on positions only, so a sequence read at once and the same one said token
by token give the same. While saying, each token writes the slot that ends with it, and those that end nowhere stay unseen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from heedful.nn import masks
from heedful.nn.attention import AttentionCore
from heedful.nn.positions import Position, make_attention_bias

History = tuple[Tensor, Tensor] | None  # (rows, stride - 1, heads x head_dim): the last keys and values, not yet convolved


class QueryKeyValue(NamedTuple):
    """What a layer made of its tokens, each (rows, heads, time, head_dim), not turned yet by any position."""

    query: Tensor
    key: Tensor
    value: Tensor


class PatternCache(NamedTuple):
    """What those who come later need of a sequence."""

    key: Tensor  # (rows, time, heads, head_dim)
    value: Tensor
    history: History


class FullPattern(nn.Module):
    """All tokens so far."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.size = size  # of a block, or of a stride

    def forward(
        self, look: AttentionCore, made: QueryKeyValue, position: Position, real: Tensor | None
    ) -> tuple[Tensor, PatternCache]:
        """A whole sequence, with nothing before it, padded at its end: real (rows, time) says where, None: nowhere.

        Returns what was found, (rows, heads, time, head_dim)."""
        positions = torch.arange(made.query.shape[2], device=made.query.device)[None]  # (1, time)
        query, key = position.rotate(made.query, positions), position.rotate(made.key, positions)
        mask = None if real is None else masks.causal(positions, positions)[:, None] & real[:, None, None]
        found = look(
            query, key, made.value, make_attention_bias(position, query, positions, positions, mask, causal=real is None)
        )
        return found, PatternCache(key.transpose(1, 2), made.value.transpose(1, 2), None)

    def blend(self, key: Tensor, value: Tensor, history: History, real: Tensor | None) -> PatternCache:
        """New keys and values (rows, time, heads, head_dim) as they are kept."""
        return PatternCache(key, value, history)

    def narrow(self, seen: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """seen (sources, query, key): what may be seen of all that came before."""
        return seen

    def beginning(self, rows: int, like: Tensor) -> History:
        """What there was before anything was said."""
        return None

    if TYPE_CHECKING:
        __call__ = forward


class LocalPattern(FullPattern):
    """The tokens so far of one's own block."""

    def forward(
        self, look: AttentionCore, made: QueryKeyValue, position: Position, real: Tensor | None
    ) -> tuple[Tensor, PatternCache]:
        rows, heads, time, _ = made.query.shape
        if time <= self.size:
            return super().forward(look, made, position, real)
        missing = -time % self.size
        positions = torch.arange(time, device=made.query.device)[None]
        query, key = position.rotate(made.query, positions), position.rotate(made.key, positions)

        def cut(x: Tensor) -> Tensor:
            blocks = functional.pad(x, (0, 0, 0, missing)).view(rows, heads, -1, self.size, x.shape[-1])
            return blocks.transpose(1, 2).flatten(0, 1)  # (rows x blocks, heads, block, head_dim)

        inside = positions[:, : self.size]  # biases depend on distances, which are alike in every block
        mask = None
        if real is not None:
            there = functional.pad(real, (0, missing)).view(-1, 1, self.size)  # (rows x blocks, 1, block)
            itself = torch.eye(self.size, dtype=torch.bool, device=real.device)  # a block of padding sees something, too
            mask = (masks.causal(inside, inside) & (there | itself))[:, None]
        query = cut(query)
        blocks = look(
            query, cut(key), cut(made.value), make_attention_bias(position, query, inside, inside, mask, causal=mask is None)
        )
        found = blocks.view(rows, -1, heads, self.size, blocks.shape[-1]).transpose(1, 2).flatten(2, 3)[:, :, :time]
        return found, PatternCache(key.transpose(1, 2), made.value.transpose(1, 2), None)

    def narrow(self, seen: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        return seen & (query_positions[:, :, None] // self.size == key_positions[:, None, :] // self.size)


class CompressedPattern(FullPattern):
    """Slots made of `stride` tokens each."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__(width, size)
        self.key, self.value = (nn.Conv1d(width, width, size, size) for _ in range(2))
        for convolution in (self.key, self.value):
            nn.init.normal_(convolution.weight, std=(size * width) ** -0.5)
            assert convolution.bias is not None
            nn.init.zeros_(convolution.bias)

    def forward(
        self, look: AttentionCore, made: QueryKeyValue, position: Position, real: Tensor | None
    ) -> tuple[Tensor, PatternCache]:
        rows, _, time, _ = made.query.shape
        positions = torch.arange(time, device=made.query.device)[None]
        ends = positions[:, :: self.size]  # (1, slots) where each slot ends
        key, value = self.squeeze(self.key, made.key), self.squeeze(self.value, made.value)  # (rows, heads, slots, head_dim)
        query, key = position.rotate(made.query, positions), position.rotate(key, ends)
        mask = masks.causal(positions, ends)[:, None]  # (1, 1, time, slots)
        if real is not None:
            mask = mask & real[:, None, None, :: self.size]
        found = look(query, key, value, make_attention_bias(position, query, positions, ends, mask))
        lengths = torch.full((rows,), time, device=query.device) if real is None else real.sum(-1)
        history = self.last(made.key, lengths), self.last(made.value, lengths)
        return found, PatternCache(self.spread(key, time), self.spread(value, time), history)

    def squeeze(self, convolution: nn.Conv1d, x: Tensor) -> Tensor:
        """(rows, heads, time, head_dim) -> (rows, heads, slots, head_dim)."""
        channels = x.transpose(2, 3).flatten(1, 2)  # (rows, heads x head_dim, time)
        slots: Tensor = convolution(functional.pad(channels, (self.size - 1, 0)))
        return slots.view(*x.shape[:2], -1, slots.shape[-1]).transpose(2, 3)

    def spread(self, slots: Tensor, time: int) -> Tensor:
        """Each slot where it ends, zeros between: (rows, heads, slots, head_dim) -> (rows, time, heads, head_dim)."""
        apart = functional.pad(slots.transpose(1, 2)[:, :, None], (0, 0, 0, 0, 0, self.size - 1))
        return apart.flatten(1, 2)[:, :time]

    def last(self, x: Tensor, lengths: Tensor) -> Tensor:
        """The last stride - 1 of each row, zeros where there are fewer: (rows, stride - 1, heads x head_dim)."""
        padded = functional.pad(x.transpose(1, 2).flatten(2), (0, 0, self.size - 1, 0))  # (rows, stride - 1 + time, width)
        at = lengths[:, None] + torch.arange(self.size - 1, device=x.device)
        return padded.gather(1, at[..., None].expand(-1, -1, padded.shape[-1]))

    def blend(self, key: Tensor, value: Tensor, history: History, real: Tensor | None) -> PatternCache:
        assert history is not None, "those who convolve remember what came before"
        keys, last_keys = self.slide(self.key, key, history[0], real)
        values, last_values = self.slide(self.value, value, history[1], real)
        return PatternCache(keys, values, (last_keys, last_values))

    def slide(self, convolution: nn.Conv1d, x: Tensor, before: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
        """The slot that ends with each token of x (rows, time, heads, head_dim), and the last tokens for next time."""
        several = torch.cat((before.to(x.dtype), x.flatten(2)), dim=1)  # (rows, stride - 1 + time, width)
        if real is not None:  # those that are not real stand aside
            there = functional.pad(real, (self.size - 1, 0), value=True)
            order = (~there).to(torch.uint8).argsort(dim=1, stable=True)[..., None].expand_as(several)
            several = several.gather(1, order)
        slots = functional.conv1d(several.transpose(1, 2), convolution.weight, convolution.bias).transpose(1, 2)
        if real is None:
            return slots.reshape(x.shape), several[:, x.shape[1] :]
        rank = (real.cumsum(-1) - 1).clamp(min=0)[..., None].expand_as(slots)  # (rows, time, width)
        last = real.sum(-1, keepdim=True) + torch.arange(self.size - 1, device=x.device)  # (rows, stride - 1)
        return slots.gather(1, rank).reshape(x.shape), several.gather(1, last[..., None].expand(-1, -1, several.shape[-1]))

    def narrow(self, seen: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        return seen & (key_positions % self.size == 0)[:, None, :]

    def beginning(self, rows: int, like: Tensor) -> History:
        shape = rows, self.size - 1, self.key.in_channels
        return like.new_zeros(shape), like.new_zeros(shape)


PATTERNS: dict[str, type[FullPattern]] = {"full": FullPattern, "local": LocalPattern, "compressed": CompressedPattern}
