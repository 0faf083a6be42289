"""What a decoder remembers, and what search does to it.

Hypotheses are rows, row = source x beam + k. A state has three trees of tensors (dictionaries, lists and tuples of tensors
or None), which differ in what happens when hypotheses change places:

    memory    (source, …)        What was read. It exists once, however many hypotheses share it.
    past      (row, …)           What a row knows. It moves with the hypothesis.
    written   (source, slot, …)  What the rows of a source wrote, each into slots of its own. It never moves: `mine` does,
                                 (row, slot), which says in what slots the hypothesis of a row stands.

So re-ordering a beam copies no cache: a row looks at all that its source's rows wrote and sees what is its own. Everybody
writes into the same slots at the same time, `filled` on; who came later owns none of the earlier ones.
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
    filled: int | Tensor = 0  # the next slot; a tensor () where steps are captured, and then slots are used in turn
    reserved: int = 0  # slots at the beginning that hold what was read (a prompt); they are never used again


class Step(NamedTuple):
    """What a decoder answers: what it thinks, what it will remember, and what it wants minimized besides."""

    hidden: Tensor  # (rows, time, dim); `project` turns it into logits
    state: State
    losses: dict[str, Loss]  # expert balance, gates, guided alignment; most models have none


States = Any  # a State, or a tuple of them: an ensemble remembers once for every member


def map_tree(function: Callable[[Tensor], Tensor], tree: Tree) -> Tree:
    """The same tree with `function` applied to each tensor."""
    if tree is None:
        return None
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, dict):
        return {key: map_tree(function, value) for key, value in tree.items()}
    return type(tree)(map_tree(function, value) for value in tree)


def map_states(function: Callable[[State], State], states: States) -> States:
    """`function` of the one state, or of every member's."""
    return function(states) if isinstance(states, State) else tuple(map_states(function, state) for state in states)


def map_rows(state: State, function: Callable[[Tensor], Tensor]) -> State:
    return state._replace(
        row_state=map_tree(function, state.row_state),
        owned_slots=None if state.owned_slots is None else function(state.owned_slots),
    )


def map_sources(state: State, function: Callable[[Tensor], Tensor]) -> State:
    return state._replace(memory=map_tree(function, state.memory), kv_cache=map_tree(function, state.kv_cache))


def select_rows(states: States, index: Tensor) -> States:
    """New row r is old row index[r], of the same source."""
    return map_states(lambda state: map_rows(state, lambda x: x.index_select(0, index)), states)


def expand_rows(states: States, beam: int) -> States:
    """From one row a source to `beam` rows, which begin alike."""
    return map_states(lambda state: map_rows(state, lambda x: x.repeat_interleave(beam, 0)), states)


def select_sources(states: States, sources: Tensor, beam: int) -> States:
    """Keep (or repeat) whole sources with all their rows: new source i is old source sources[i]."""
    rows = (sources[:, None] * beam + torch.arange(beam, device=sources.device)).flatten()  # (new sources x beam,)

    def select(state: State) -> State:
        kept = map_sources(state, lambda x: x.index_select(0, sources))
        return map_rows(kept, lambda x: x.index_select(0, rows))

    return map_states(select, states)


def insert_sources(states: States, arriving: States, sources: Tensor, beam: int) -> None:
    """Put newly started sources, one row each, where `sources` tells, over what stood there.

    What is shorter than its place (a source, a prompt) is filled up with zeros, which mean: nothing here."""
    if not isinstance(states, State):
        for state, new in zip(states, arriving, strict=True):
            insert_sources(state, new, sources, beam)
        return
    rows = (sources[:, None] * beam + torch.arange(beam, device=sources.device)).flatten()
    new = map_rows(arriving, lambda x: x.repeat_interleave(beam, 0))
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
    """Put these sources of other states, with all that their rows know and wrote, into the first places of these."""
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
    """Let the rows of sources that are done own nothing, so that nobody reads what they wrote; done (sources,)."""

    def close(state: State) -> State:
        if state.owned_slots is None:
            return state
        return state._replace(
            owned_slots=state.owned_slots & ~done.repeat_interleave(len(state.owned_slots) // len(done))[:, None]
        )

    return map_states(close, states)


def overwrite(old: Tree, new: Tree, index: Tensor) -> None:
    """old[index] = new, for every tensor; where nothing is new nothing changes."""
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
        for one, other in zip(old, new, strict=True):
            overwrite(one, other, index)


def copy_states(states: States, new: States) -> None:
    """Copy a later state into the tensors of an earlier one: captured steps always read and write the same places."""
    if not isinstance(states, State):
        for state, later in zip(states, new, strict=True):
            copy_states(state, later)
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
        for one, other in zip(old, new, strict=True):
            copy_tree(one, other)


def compact(states: States, living: Tensor) -> States:
    """Move what the living rows own to the front, source by source, and free all other slots; living (sources, beam).

    Hypotheses soon go back to the same beginnings, so of the slots that a beam has filled most are nobody's."""
    sources, beam = living.shape

    def to_front(state: State) -> State:
        if state.owned_slots is None:
            return state
        first, end = state.reserved, int(state.filled)
        owned = state.owned_slots[:, first:end].view(sources, beam, -1) & living[..., None]
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
    """Give each new token a slot: `mine` with the new slots marked, in place, and which slots they are.

    tokens (rows, time); real (rows, time): which of them count, None: all. Without a `mine` there is no past, and the new
    slots are all there is."""
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
    assert end <= owned_slots.shape[1], f"room was made for {owned_slots.shape[1]} tokens, but {end} were given"
    owned_slots[:, filled:end] = own
    return owned_slots, slice(filled, end)


@lru_cache(maxsize=16)
def new_slot_owners(beam: int, time: int, device: torch.device) -> Tensor:
    """(beam, beam x time): row k of a source has the k-th part of the new slots."""
    with torch.inference_mode(False):  # whoever asks first, others may want gradients
        return torch.eye(beam, dtype=torch.bool, device=device).repeat_interleave(time, 1)


def write(buffer: Tensor, slots: Tensor | slice, new: Tensor) -> Tensor:
    """Write new things (source, new slots, …) into a buffer (source, slot, …); returns what has been written so far."""
    if isinstance(slots, slice):
        buffer[:, slots] = new
        return buffer[:, : slots.stop]
    return buffer.index_copy_(1, slots, new)


def write_pair(buffers: tuple[Tensor, Tensor], slots: Tensor | slice, new: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """As `write`, for keys and values at once."""
    if isinstance(slots, slice):
        return write(buffers[0], slots, new[0]), write(buffers[1], slots, new[1])
    write_both(*buffers, slots, *new)
    return buffers


def clone(states: States) -> States:
    """A copy to branch from: a state is consumed by its use."""

    def copy(state: State) -> State:
        state = map_rows(state, Tensor.clone)
        return state._replace(kv_cache=map_tree(Tensor.clone, state.kv_cache))

    return map_states(copy, states)
