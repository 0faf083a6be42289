"""The state of a decoder between steps, and the operations that search performs on it.

Hypotheses are rows, row = source x beam + k. A state has three trees of tensors (dictionaries, lists and tuples of tensors
or None), which differ in what happens when a beam is reordered:

    memory      (source, …)        Encoder output, stored once for all hypotheses of a source.
    row_state   (row, …)           Recurrent states and the like. It is reordered with the hypotheses.
    kv_cache    (source, slot, …)  Keys and values of all rows of a source, each token in a slot of its own. It is never
                                   reordered; the mask `owned_slots` (row, slot) is, which marks the tokens of each hypothesis.

So reordering a beam copies no cache: a row attends to all slots of its source under the mask `owned_slots`. All sources
write the same slots in a step, from `filled` on; a source that was inserted later owns none of the earlier slots.

The recursions here are three to four times faster per step than torch's pytree functions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from heedful.nn.kernels import write_both
from heedful.nn.losses import Loss

Tree = Any  # dict | list | tuple | Tensor | None, nested


class State(NamedTuple):
    memory: Tree
    row_state: Tree
    kv_cache: Tree = None
    owned_slots: Tensor | None = None  # (rows, slots)
    filled: int | Tensor = (
        0  # the next slot; a tensor () where steps are captured in CUDA graphs: slots are then reused in turn
    )
    reserved: int = 0  # first slots, which hold the prompt; they are never reused


class Step(NamedTuple):
    """Output of a decoder step."""

    hidden: Tensor  # (rows, time, dim); `project` turns it into logits
    state: State
    losses: dict[str, Loss]  # auxiliary losses, such as load balancing of experts; most models have none


States = Any  # a State, or a tuple of them: one for each member of an ensemble


def map_tree(function: Callable[[Tensor], Tensor], tree: Tree) -> Tree:
    """Apply `function` to each tensor of a tree."""
    if tree is None:
        return None
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, dict):
        return {key: map_tree(function, value) for key, value in tree.items()}
    return type(tree)(map_tree(function, value) for value in tree)


def map_states(function: Callable[[State], State], states: States) -> States:
    """Apply `function` to a state, or to the state of each ensemble member."""
    return function(states) if isinstance(states, State) else tuple(map_states(function, state) for state in states)


def map_rows(state: State, function: Callable[[Tensor], Tensor]) -> State:
    return state._replace(
        row_state=map_tree(function, state.row_state),
        owned_slots=None if state.owned_slots is None else function(state.owned_slots),
    )


def map_sources(state: State, function: Callable[[Tensor], Tensor]) -> State:
    return state._replace(memory=map_tree(function, state.memory), kv_cache=map_tree(function, state.kv_cache))


def select_rows(states: States, index: Tensor) -> States:
    """Reorder rows: new row r is old row index[r], which belongs to the same source."""
    return map_states(lambda state: map_rows(state, lambda x: x.index_select(0, index)), states)


def expand_rows(states: States, beam: int) -> States:
    """Repeat each row `beam` times, from one row per source to `beam` rows."""
    return map_states(lambda state: map_rows(state, lambda x: x.repeat_interleave(beam, 0)), states)


def select_sources(states: States, sources: Tensor, beam: int) -> States:
    """Select (or repeat) sources with all their rows: new source i is old source sources[i]."""
    rows = (sources[:, None] * beam + torch.arange(beam, device=sources.device)).flatten()  # (new sources x beam,)

    def select(state: State) -> State:
        kept = map_sources(state, lambda x: x.index_select(0, sources))
        return map_rows(kept, lambda x: x.index_select(0, rows))

    return map_states(select, states)


def pad_sources(states: States, count: int, beam: int) -> States:
    """Append `count` sources of zeros, to be overwritten by `insert_sources`."""

    def pad(x: Tensor, rows: int) -> Tensor:
        return torch.cat((x, x.new_zeros(rows, *x.shape[1:])))

    return map_states(
        lambda state: map_rows(map_sources(state, lambda x: pad(x, count)), lambda x: pad(x, count * beam)), states
    )


def add_room(state: State, slots: int) -> State:
    """The state with all its tokens as a prompt, and with `slots` free slots after it."""
    assert state.owned_slots is not None and isinstance(state.filled, int), "a state with a cache, not in a CUDA graph"
    end = state.filled

    def resize(x: Tensor) -> Tensor:
        return functional.pad(x[:, :end], (0, 0) * (x.dim() - 2) + (0, slots))

    return state._replace(kv_cache=map_tree(resize, state.kv_cache), owned_slots=resize(state.owned_slots), reserved=end)


def insert_sources(states: States, started: States, sources: Tensor, beam: int) -> None:
    """Overwrite the sources at indices `sources` with newly started ones, which have one row each.

    Shorter tensors (of a source, a prompt) are padded with zeros, which masks read as padding."""
    if not isinstance(states, State):
        for state, new in zip(states, started, strict=True):
            insert_sources(state, new, sources, beam)
        return
    rows = (sources[:, None] * beam + torch.arange(beam, device=sources.device)).flatten()
    new = map_rows(started, lambda x: x.repeat_interleave(beam, 0))
    for old_tree, new_tree, index in (
        (states.memory, new.memory, sources),
        (states.row_state, new.row_state, rows),
        (states.kv_cache, new.kv_cache, sources),
    ):
        overwrite(old_tree, new_tree, index)
    if states.owned_slots is not None:
        overwrite(
            states.owned_slots, states.owned_slots.new_zeros(len(rows), 0) if new.owned_slots is None else new.owned_slots, rows
        )


def move_sources(states: States, others: States, sources: Tensor, beam: int) -> None:
    """Copy the given sources of `others`, with rows and caches, over the first sources of `states`."""
    if not isinstance(states, State):
        for state, other in zip(states, others, strict=True):
            move_sources(state, other, sources, beam)
        return
    moved, first = select_sources(others, sources, beam), torch.arange(len(sources) * beam, device=sources.device)
    for old_tree, new_tree, index in (
        (states.memory, moved.memory, first[: len(sources)]),
        (states.row_state, moved.row_state, first),
        (states.kv_cache, moved.kv_cache, first[: len(sources)]),
        (states.owned_slots, moved.owned_slots, first),
    ):
        overwrite(old_tree, new_tree, index)
    copy_tree(states.filled, moved.filled)


def mask_finished(states: States, done: Tensor) -> States:
    """Clear `owned_slots` of finished sources, so that nothing attends to their cache; done (sources,)."""

    def mask(state: State) -> State:
        if state.owned_slots is None:
            return state
        return state._replace(
            owned_slots=state.owned_slots & ~done.repeat_interleave(len(state.owned_slots) // len(done))[:, None]
        )

    return map_states(mask, states)


def overwrite(old: Tree, new: Tree, index: Tensor) -> None:
    """old[index] = new for every tensor, padded at the end of each dimension; None changes nothing."""
    if old is None or new is None:
        return
    if isinstance(old, Tensor):
        missing = [old.shape[axis] - new.shape[axis] for axis in range(1, old.dim())]
        assert min(missing, default=0) >= 0, f"{tuple(new.shape)} does not fit into {tuple(old.shape)}"
        if any(missing):
            new = functional.pad(new, [size for gap in reversed(missing) for size in (0, gap)])
        old.index_copy_(0, index, new.to(old.dtype))
    elif isinstance(old, dict):
        for key in old:
            overwrite(old[key], new[key], index)
    else:
        for old_part, new_part in zip(old, new, strict=True):
            overwrite(old_part, new_part, index)


def copy_states(states: States, new: States) -> None:
    """Copy new states into the tensors of old ones: captured steps read and write fixed addresses."""
    if not isinstance(states, State):
        for old_state, new_state in zip(states, new, strict=True):
            copy_states(old_state, new_state)
        return
    for old_tree, new_tree in zip(states, new, strict=True):
        copy_tree(old_tree, new_tree)


def copy_tree(old: Tree, new: Tree) -> None:
    if isinstance(old, Tensor):
        if old is not new:
            old.copy_(new)
    elif isinstance(old, dict):
        for key in old:
            copy_tree(old[key], new[key])
    elif isinstance(old, list | tuple):
        for old_part, new_part in zip(old, new, strict=True):
            copy_tree(old_part, new_part)


def compact(states: States, active: Tensor) -> States:
    """Move the slots that active rows own to the front of each source and free all others; active (sources, beam).

    Hypotheses of a beam soon share their prefixes, so most of the slots that it has filled belong to no hypothesis."""
    sources, beam = active.shape

    def to_front(state: State) -> State:
        if state.owned_slots is None:
            return state
        first, end = state.reserved, int(state.filled)
        owned = state.owned_slots[:, first:end].view(sources, beam, -1) & active[..., None]
        owned = owned.any(1)  # (sources, slots)
        left = int(owned.sum(1).max())
        order = first + owned.int().argsort(dim=1, descending=True, stable=True)[:, :left]  # (sources, left)

        def move(x: Tensor, order: Tensor) -> Tensor:
            x[:, first : first + left] = x[torch.arange(len(x), device=x.device)[:, None], order]
            return x

        owned_slots = move(state.owned_slots, order.repeat_interleave(beam, 0))
        owned_slots[:, first + left : end] = False
        return state._replace(
            kv_cache=map_tree(lambda x: move(x, order), state.kv_cache), owned_slots=owned_slots, filled=first + left
        )

    return map_states(to_front, states)


def allocate(state: State, beam: int, tokens: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor | slice]:
    """Allocate a slot for each new token -> `owned_slots` with the new slots marked (in place), and the slots.

    tokens (rows, time); real (rows, time): padding mask, None: no padding. A state without `owned_slots` has no cache; the
    new tokens then attend to each other only."""
    owned_slots, filled, first = state.owned_slots, state.filled, state.reserved
    rows, time = tokens.shape
    own = new_slot_owners(int(beam), time, tokens.device).repeat(rows // beam, 1)
    if real is not None:
        own = own & real.repeat(1, beam)
    if owned_slots is None:
        return own, slice(0, beam * time)
    if isinstance(filled, Tensor):
        slots = first + (filled - first + torch.arange(beam * time, device=tokens.device)) % (owned_slots.shape[1] - first)
        return owned_slots.index_copy_(1, slots, own), slots
    end = filled + beam * time
    assert end <= owned_slots.shape[1], f"the cache has {owned_slots.shape[1]} slots, but {end} tokens were given"
    owned_slots[:, filled:end] = own
    return owned_slots, slice(filled, end)


@lru_cache(maxsize=16)
def new_slot_owners(beam: int, time: int, device: torch.device) -> Tensor:
    """(beam, beam x time): row k of a source owns the k-th part of the new slots."""
    with torch.inference_mode(False):  # the cached tensor may later be used with gradients
        return torch.eye(beam, dtype=torch.bool, device=device).repeat_interleave(time, 1)


def write(buffer: Tensor, slots: Tensor | slice, new: Tensor) -> Tensor:
    """Write new entries (source, new slots, …) into a buffer (source, slot, …); return the part written so far."""
    if isinstance(slots, slice):
        buffer[:, slots] = new
        return buffer[:, : slots.stop]
    return buffer.index_copy_(1, slots, new)


def write_pair(buffers: tuple[Tensor, Tensor], slots: Tensor | slice, new: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """As `write`, for keys and values in one kernel."""
    if isinstance(slots, slice):
        return write(buffers[0], slots, new[0]), write(buffers[1], slots, new[1])
    write_both(*buffers, slots, *new)
    return buffers


def clone(states: States) -> States:
    """Copy states: `step` modifies the caches of the state that it is given."""

    def copy(state: State) -> State:
        state = map_rows(state, Tensor.clone)
        return state._replace(kv_cache=map_tree(Tensor.clone, state.kv_cache))

    return map_states(copy, states)
