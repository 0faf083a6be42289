"""What a decoder remembers, and the only two things that search does to it.

A state has two trees of tensors (dictionaries, lists and tuples of tensors or None):

    memory   first axis: the source.  What was read; it exists once, however many hypotheses share it.
    past     first axis: the row, row = source x beam + k.  What was said so far.

`filled` counts the slots of the past's time axis that hold something; it is the same for all rows. Rows that began
later, or whose prompt was shorter, mark their unused slots as not held.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.nn.losses import Loss

Tree = Any  # dict | list | tuple | Tensor | None, nested


class State(NamedTuple):
    memory: Tree
    past: Tree
    filled: int


class Step(NamedTuple):
    """What a decoder answers: what it thinks, what it will remember, and what it wants minimised besides."""

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


def each_state(function: Callable[[State], State], states: States) -> States:
    """`function` of the one state, or of every member's."""
    return function(states) if isinstance(states, State) else tuple(each_state(function, state) for state in states)


def select_rows(states: States, index: Tensor) -> States:
    """New row r is old row index[r] (the number of rows may change); the sources stay."""
    return each_state(lambda s: s._replace(past=map_tree(lambda x: x.index_select(0, index), s.past)), states)


def select_sources(states: States, sources: Tensor, beam: int) -> States:
    """Keep (or repeat) whole sources with all their rows: new source i is old source sources[i]."""
    rows = (sources[:, None] * beam + torch.arange(beam, device=sources.device)).flatten()  # (new sources x beam,)

    def select(state: State) -> State:
        memory = map_tree(lambda x: x.index_select(0, sources), state.memory)
        return State(memory, map_tree(lambda x: x.index_select(0, rows), state.past), state.filled)

    return each_state(select, states)


def clone(states: States) -> States:
    """A copy to branch from: a state is consumed by its use."""
    return each_state(lambda s: State(s.memory, map_tree(Tensor.clone, s.past), s.filled), states)
