"""A model as two functions of plain tensors, as other runtimes need it.

    start   source, real                       -> initial decoder state; of images their pixels, without `real`
    step    token, decoder state               -> logits, next decoder state

The decoder state (nn/decoder_state.py) is a tree; here it is a flat list of tensors, each named by its path in the tree.
Tensors named memory.… are constant, the others are replaced after each step. Each hypothesis has a row of its own in all of
them, including memory, and cache slots are appended as tokens are generated: to reorder hypotheses, index the rows of every
tensor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from heedful.models.family import ImageShape
from heedful.models.vit import LEVELS
from heedful.nn.decoder_state import State, Tree, map_tree

MEMORY = "memory"
SIZES = {"rows": 3, "source": 5, "row_state": 2}  # of an example; each is varied to find the axes that depend on it
FIRST_ID = 4  # an id that is not a special token


class Axes(NamedTuple):
    """A tensor's name, and for each axis its size, or the name of its dynamic size."""

    name: str
    sizes: tuple[int | str, ...]

    @property
    def open(self) -> dict[int, str]:
        """The dynamic axes, with their names."""
        return {axis: size for axis, size in enumerate(self.sizes) if isinstance(size, str)}


def state_parts(state: State) -> dict[str, Tree]:
    return {MEMORY: state.memory, "row_state": state.row_state, "kv_cache": state.kv_cache, "owned_slots": state.owned_slots}


def leaves(tree: Tree, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor of a tree with its path."""
    if isinstance(tree, Tensor):
        yield path, tree
    elif tree is not None:
        for key, branch in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from leaves(branch, f"{path}.{key}" if path else str(key))


def unflatten_like(like: Tree, tensors: Mapping[str, Tensor], path: str = "") -> Tree:
    """Return a tree of the structure of `like` with these tensors."""
    if like is None:
        return None
    if isinstance(like, Tensor):
        return tensors[path]
    if isinstance(like, dict):
        return {key: unflatten_like(branch, tensors, f"{path}.{key}" if path else str(key)) for key, branch in like.items()}
    return type(like)(unflatten_like(branch, tensors, f"{path}.{number}") for number, branch in enumerate(like))


def append_slot(x: Tensor) -> Tensor:
    """Append a slot of zeros: x (rows, slots, …) -> (rows, slots + 1, …)."""
    return torch.cat((x, x.new_zeros(x.shape[0], 1, *x.shape[2:])), dim=1)


def start_state(model: Any, source: Tensor, real: Tensor | None) -> State:
    """Return the initial state, without unused cache slots."""
    state: State = model.start(source, real, room=1)
    if state.owned_slots is None:
        return state
    filled = state.filled
    return state._replace(kv_cache=map_tree(lambda x: x[:, :filled], state.kv_cache), owned_slots=state.owned_slots[:, :filled])


class Start(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, real: Tensor | None = None) -> tuple[Tensor, ...]:
        """source (rows, source) ids, real (rows, source): False for padding; or source (rows, height, width, channels) pixels
        -> tensors of the initial state."""
        return tuple(tensor for _, tensor in leaves(state_parts(start_state(self.model, source, real))))


class Step(nn.Module):
    def __init__(self, model: nn.Module, like: State) -> None:
        super().__init__()
        self.model, self.like = model, like
        self.names = [name for name, _ in leaves(state_parts(like))]

    def forward(self, token: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        """token (rows,): the last generated -> logits (rows, vocabulary) and the next state, without the memory."""
        parts = unflatten_like(state_parts(self.like), dict(zip(self.names, tensors, strict=True)))
        slots = 0 if parts["owned_slots"] is None else parts["owned_slots"].shape[1]
        grown = {name: map_tree(append_slot, parts[name]) for name in ("kv_cache", "owned_slots")}
        state = State(parts[MEMORY], parts["row_state"], grown["kv_cache"], grown["owned_slots"], slots)
        model: Any = self.model
        output = model.step(token[:, None], state)
        after = {name: part for name, part in state_parts(output.state).items() if name != MEMORY}
        return model.project(output.hidden[:, -1]), *(tensor for _, tensor in leaves(after))


class Example(NamedTuple):
    """Example inputs of both functions, for tracing."""

    source: Tensor
    real: Tensor | None
    token: Tensor
    state: State

    @property
    def tensors(self) -> dict[str, Tensor]:
        return dict(leaves(state_parts(self.state)))


def example(model: nn.Module, image: ImageShape | None = None, /, *, rows: int, source: int, row_state: int) -> Example:
    """Return example inputs: `rows` hypotheses for `source` source tokens, or for an image of this shape, after `row_state`
    generated tokens."""
    real: Tensor | None = None
    if image is None:
        ids = FIRST_ID + torch.arange(rows * source).view(rows, source) % 3
        real = torch.ones(rows, source, dtype=torch.bool)
        real[0, -1] = False
    else:
        ids = (torch.arange(rows * math.prod(image)) % LEVELS).to(torch.uint8).view(rows, *image)
    token = torch.full((rows,), FIRST_ID)
    state = start_state(model, ids, real)
    names = [name for name, _ in leaves(state_parts(state)) if not name.startswith(MEMORY)]
    for _ in range(row_state):
        tensors = dict(leaves(state_parts(state)))
        after = Step(model, state).eval()(token, *tensors.values())[1:]
        parts = unflatten_like(state_parts(state), tensors | dict(zip(names, after, strict=True)))
        state = State(parts[MEMORY], parts["row_state"], parts["kv_cache"], parts["owned_slots"])
    return Example(ids, real, token, state)


def find_axes(model: nn.Module, image: ImageShape | None = None) -> list[Axes]:
    """Return the axes of every tensor of a state; dynamic ones are found by comparing states of several sizes."""
    base = {name: tensor.shape for name, tensor in example(model, image, **SIZES).tensors.items()}
    larger = {
        cause: {name: x.shape for name, x in example(model, image, **SIZES | {cause: SIZES[cause] + 2}).tensors.items()}
        for cause in SIZES
    }

    def axis_size(name: str, axis: int) -> int | str:
        size = base[name][axis]
        causes = [cause for cause in SIZES if larger[cause][name][axis] != size]
        if not causes:
            return size
        expected = sum(SIZES[cause] for cause in causes)
        return "_".join(causes) if size == expected else f"{'_'.join(causes)}_{size}"

    return [Axes(name, tuple(axis_size(name, axis) for axis in range(len(shape)))) for name, shape in base.items()]
