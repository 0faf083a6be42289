"""Positions, slots and mask of the new tokens of a decoder step, shared by all layers of a stack.

The rows (hypotheses) of a source are joined along time, (source, new = beam x time), so that all attend to one memory and one
cache. `whole_sequence` is for all tokens at once, `next_tokens` for tokens after those of a state.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from heedful.nn import masks
from heedful.nn.decoder_state import State, allocate, new_slot_owners, write, write_pair


class StepContext(NamedTuple):
    sources: int
    rows: int
    time: int
    real: Tensor | None  # (rows, time): padding mask; None: no padding
    query_positions: Tensor  # (sources or 1, new)
    key_positions: Tensor  # (sources or 1, slots)
    mask: Tensor | None = None  # (sources, new, slots): each token's own hypothesis up to itself; None: a whole sequence
    owned_slots: Tensor | None = None  # (rows, slots): as in a state, with the new slots marked
    slots: Tensor | slice | None = None  # slots of the new tokens; None: they are concatenated to the cache
    is_source: bool = False  # the tokens are those of the source, in a decoder-only model
    bias: Tensor | None = None  # (sources or 1, 1, new, slots): that of a structure, added to the scaled scores

    @property
    def whole(self) -> bool:
        """Whether there are no previous tokens."""
        return self.mask is None

    def group_by_source(self, x: Tensor) -> Tensor:
        """Group the rows of each source: (rows, time, dim) -> (sources, new, dim)."""
        return x.reshape(self.sources, -1, x.shape[-1])

    def append(self, buffers: tuple[Tensor, Tensor] | None, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values (sources, new, heads, size) to the cache -> all of them (sources, heads, slots, size)."""
        if buffers is not None and self.slots is not None:
            key, value = write_pair(buffers, self.slots, (key, value))
        elif buffers is not None:
            key, value = torch.cat((buffers[0], key), dim=1), torch.cat((buffers[1], value), dim=1)
        return key.transpose(1, 2), value.transpose(1, 2)


def whole_sequence(tokens: Tensor, real: Tensor | None = None, *, is_source: bool = False) -> StepContext:
    """The context of a whole sequence: tokens (rows, time), one row per source."""
    rows, time = tokens.shape
    positions = torch.arange(time, device=tokens.device)[None]  # (1, new)
    return StepContext(rows, rows, time, real, positions, positions, is_source=is_source)


def next_tokens(
    state: State, tokens: Tensor, real: Tensor | None, *, sources: int, limit: int | None = None, window: int = 0
) -> StepContext:
    """The context of tokens (rows, time) after those of a state, whose slots are marked and whose positions are stored.

    limit: number of positions; window: tokens that a token attends to, 0: all before it."""
    rows, time = tokens.shape
    beam = rows // sources
    following = torch.arange(time, device=tokens.device)[None] if real is None else (real.cumsum(-1) - 1).clamp(min=0)
    positions = following.expand_as(tokens)  # (rows, time): padding takes no position
    if state.owned_slots is not None:
        positions = positions + state.owned_slots.sum(-1, keepdim=True)
    if limit is not None and isinstance(state.filled, Tensor):
        positions = positions.clamp(max=limit - 1)  # of finished rows, which still run in captured steps
    query_positions = key_positions = positions.reshape(sources, -1)  # (sources, new)
    slots: Tensor | slice | None = None
    if state.owned_slots is None or has_room(state):
        owned_slots, slots = allocate(state, beam, tokens, real)
    else:
        own = new_slot_owners(int(beam), time, tokens.device).repeat(rows // beam, 1)
        owned_slots = torch.cat((state.owned_slots, own if real is None else own & real.repeat(1, beam)), dim=1)
    if state.kv_cache is not None:
        cached = state.kv_cache["positions"]
        key_positions = (
            torch.cat((cached, query_positions), dim=1) if slots is None else write(cached, slots, query_positions)
        )  # (sources, slots)
    owned = owned_slots[:, : key_positions.shape[1]].view(sources, beam, 1, -1)
    mask = owned.expand(-1, -1, time, -1).flatten(1, 2)  # (sources, new, slots)
    if window:
        mask = mask & masks.causal_window(query_positions, key_positions, window)
    elif time > 1:
        mask = mask & masks.causal(query_positions, key_positions)
    return StepContext(sources, rows, time, real, query_positions, key_positions, mask, owned_slots, slots)


def has_room(state: State) -> bool:
    """Whether the cache has slots for new tokens."""
    return state.owned_slots is not None and state.owned_slots.shape[1] > state.reserved
