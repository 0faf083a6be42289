"""A model as two functions of plain tensors, which is all that other runtimes know.

    start   source, real                       -> all that is known before anything is said
    step    token, and all that is known       -> logits, and what is known then

What is known is a state (nn/rows.py), a tree; here it is a row of tensors, each with its path in the tree for a name. Those
called memory.… stay as they are, the others are replaced by what a step answers. Each hypothesis has a row of its own in all
of them, also in memory, and slots are added as tokens are said: whoever re-orders hypotheses takes rows of every tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from heedful.nn.decoder_state import State, Tree, map_tree

MEMORY = "memory"
SIZES = {"rows": 3, "source": 5, "row_state": 2}  # of an example; each is changed once to see what it decides
FIRST_ID = 4  # an id that is no special token


class Axes(NamedTuple):
    """A tensor's name, and of each axis its size, or the name of what decides it."""

    name: str
    sizes: tuple[int | str, ...]

    @property
    def open(self) -> dict[int, str]:
        """The axes whose sizes are not fixed."""
        return {axis: size for axis, size in enumerate(self.sizes) if isinstance(size, str)}


def parts_of(state: State) -> dict[str, Tree]:
    return {MEMORY: state.memory, "row_state": state.row_state, "kv_cache": state.kv_cache, "owned_slots": state.owned_slots}


def leaves(tree: Tree, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor of a tree with its path."""
    if isinstance(tree, Tensor):
        yield path, tree
    elif tree is not None:
        for key, branch in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from leaves(branch, f"{path}.{key}" if path else str(key))


def unflatten_like(like: Tree, tensors: Mapping[str, Tensor], path: str = "") -> Tree:
    """The tree with these tensors in the places of its own."""
    if like is None:
        return None
    if isinstance(like, Tensor):
        return tensors[path]
    if isinstance(like, dict):
        return {key: unflatten_like(branch, tensors, f"{path}.{key}" if path else str(key)) for key, branch in like.items()}
    return type(like)(unflatten_like(branch, tensors, f"{path}.{number}") for number, branch in enumerate(like))


def one_slot_more(x: Tensor) -> Tensor:
    """x (rows, slots, …) -> (rows, slots + 1, …)."""
    return torch.cat((x, x.new_zeros(x.shape[0], 1, *x.shape[2:])), dim=1)


def start_inputs(model: Any, source: Tensor, real: Tensor) -> State:
    """A state with no slot that nobody wrote."""
    state: State = model.start(source, real, room=1)
    if state.owned_slots is None:
        return state
    filled = state.filled
    return state._replace(kv_cache=map_tree(lambda x: x[:, :filled], state.kv_cache), owned_slots=state.owned_slots[:, :filled])


class Start(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, real: Tensor) -> tuple[Tensor, ...]:
        """source (rows, source) ids, real (rows, source): False where it is padded."""
        return tuple(tensor for _, tensor in leaves(parts_of(start_inputs(self.model, source, real))))


class Step(nn.Module):
    def __init__(self, model: nn.Module, like: State) -> None:
        super().__init__()
        self.model, self.like = model, like
        self.names = [name for name, _ in leaves(parts_of(like))]

    def forward(self, token: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        """token (rows,): what was said last -> logits (rows, vocabulary), and what is known then, but for the memory."""
        known = unflatten_like(parts_of(self.like), dict(zip(self.names, tensors, strict=True)))
        slots = 0 if known["owned_slots"] is None else known["owned_slots"].shape[1]
        grown = {name: map_tree(one_slot_more, known[name]) for name in ("kv_cache", "owned_slots")}
        state = State(known[MEMORY], known["row_state"], grown["kv_cache"], grown["owned_slots"], slots)
        model: Any = self.model
        said = model.step(token[:, None], state)
        after = {name: part for name, part in parts_of(said.state).items() if name != MEMORY}
        return model.project(said.hidden[:, -1]), *(tensor for _, tensor in leaves(after))


class Example(NamedTuple):
    """Something to show both functions with."""

    source: Tensor
    real: Tensor
    token: Tensor
    state: State

    @property
    def tensors(self) -> dict[str, Tensor]:
        return dict(leaves(parts_of(self.state)))


def example(model: nn.Module, *, rows: int, source: int, row_state: int) -> Example:
    """So many rows that have read so many tokens and said so many."""
    read = FIRST_ID + torch.arange(rows * source).view(rows, source) % 3
    real = torch.ones(rows, source, dtype=torch.bool)
    real[0, -1] = False
    token = torch.full((rows,), FIRST_ID)
    state = start_inputs(model, read, real)
    names = [name for name, _ in leaves(parts_of(state)) if not name.startswith(MEMORY)]
    for _ in range(row_state):
        known = dict(leaves(parts_of(state)))
        after = Step(model, state).eval()(token, *known.values())[1:]
        parts = unflatten_like(parts_of(state), known | dict(zip(names, after, strict=True)))
        state = State(parts[MEMORY], parts["row_state"], parts["kv_cache"], parts["owned_slots"])
    return Example(read, real, token, state)


def axes_of(model: nn.Module) -> list[Axes]:
    """Of every tensor of a state, what its size depends on: found by looking at states of several sizes."""
    usual = {name: tensor.shape for name, tensor in example(model, **SIZES).tensors.items()}
    larger = {
        cause: {name: x.shape for name, x in example(model, **SIZES | {cause: SIZES[cause] + 2}).tensors.items()}
        for cause in SIZES
    }

    def decided(name: str, axis: int) -> int | str:
        size = usual[name][axis]
        causes = [cause for cause in SIZES if larger[cause][name][axis] != size]
        if not causes:
            return size
        told = sum(SIZES[cause] for cause in causes)
        return "_".join(causes) if size == told else f"{'_'.join(causes)}_{size}"

    return [Axes(name, tuple(decided(name, axis) for axis in range(len(shape)))) for name, shape in usual.items()]
