"""Attention maps: who looks at whom, in every layer and head of a model of any family, by one call.

    for one in attention_maps(model, source, target_in):
        one.kind, one.layer, one.weights        # "cross", 0, (heads, query, key)

The maps come from one forced pass over the finished target, not from inside the search. What a tap's name says of it
stands in KINDS; a family whose attention goes by one of these names needs nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from heedful.nn.rows import State, Step
from heedful.nn.taps import record, taps

Side = Literal["source", "target", "both"]  # both: the source, then the target, in one sequence


class Kind(NamedTuple):
    """A kind of attention: what it is called, whose tokens look, and at whose."""

    name: str
    queries: Side
    keys: Side


KINDS = {
    "encoder.*.attention.look.weights": Kind("encoder", "source", "source"),
    "decoder.*.attention.look.weights": Kind("decoder", "target", "target"),
    "*cross.look.weights": Kind("cross", "target", "source"),
    "*layers.*.reading.weights": Kind("reading", "source", "source"),
    "*layers.*.attention.look.weights": Kind("within", "target", "both"),
}


class Map(NamedTuple):
    """One layer's attention of one kind."""

    name: str  # of the tap that hears its weights
    kind: Kind
    layer: int
    weights: Tensor  # (heads, query, key)


class Says(Protocol):
    """What is asked of a model: to read, and to be led through a target."""

    def start(self, source: Tensor, source_mask: Tensor | None, *, room: int) -> State: ...

    def step(self, tokens: Tensor, state: State, mask: Tensor | None = None) -> Step: ...


def kind_of(name: str) -> Kind | None:
    """What the tap of this name hears, if it hears the weights of attention."""
    return next((kind for pattern, kind in KINDS.items() if fnmatchcase(name, pattern)), None)


def attentions(model: nn.Module) -> dict[str, Kind]:
    """The taps that hear weights of attention, in the order of the model."""
    return {name: kind for name in taps(model) if (kind := kind_of(name)) is not None}


def attention_maps(model: Says, source: Tensor, target_in: Tensor, *kinds: str) -> list[Map]:
    """source (1, source time), target_in (1, target time); of these kinds, or of all."""
    assert isinstance(model, nn.Module), "models are modules"
    wanted = {name: kind for name, kind in attentions(model).items() if not kinds or kind.name in kinds}
    if not wanted:
        return []
    with forced(model), record(model, *wanted) as seen:
        model.step(target_in, model.start(source, None, room=0))
    heard = {name: kind for name, kind in wanted.items() if name in seen}  # an empty source is not read
    return [Map(name, kind, layer_of(name), seen[name][0]) for name, kind in heard.items()]


@contextmanager
def still(model: nn.Module) -> Iterator[None]:
    """Without dropout; the model is left as it was."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


@contextmanager
def forced(model: nn.Module) -> Iterator[None]:
    """Without dropout and without gradients."""
    with still(model), torch.inference_mode():
        yield


@contextmanager
def differentiable(model: nn.Module) -> Iterator[None]:
    """Without dropout, with gradients."""
    # cuDNN's recurrent layers have no backward pass outside of training
    with still(model), torch.inference_mode(False), torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        yield


def layer_of(name: str) -> int:
    """The first number in a tap's name; where there is none, the model has one such layer."""
    found = re.search(r"\.(\d+)\.", name)
    return int(found[1]) if found else 0
