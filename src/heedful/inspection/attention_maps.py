"""Attention maps: who looks at whom, in every layer and head of a model of any family, by one call.

    for one in attention_maps(model, source, target_in):
        one.kind, one.layer, one.weights        # "cross", 0, (heads, query, key)

The maps come from one forced pass over the finished target, not from inside the search. What a tap's name says of it
stands in KINDS; a family whose attention goes by one of these names needs nothing else.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn

from heedful.nn.decoder_state import State, Step
from heedful.nn.hooks import hook_points, record

AnyModel = TypeVar("AnyModel")
Side = Literal["source", "target", "both"]  # both: the source, then the target, in one sequence


class Kind(NamedTuple):
    """A kind of attention: what it is called, whose tokens look, and at whose."""

    name: str
    queries: Side
    keys: Side


KINDS = {
    "encoder.*.self_attention.weights": Kind("encoder", "source", "source"),
    "decoder.*.self_attention.weights": Kind("decoder", "target", "target"),
    "*cross_attention.weights": Kind("cross", "target", "source"),
    "*layers.*.reading.weights": Kind("reading", "source", "source"),
    "*layers.*.self_attention.weights": Kind("within", "target", "both"),
}


class AttentionMap(NamedTuple):
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
    return {name: kind for name in hook_points(model) if (kind := kind_of(name)) is not None}


def attention_maps(model: Says, source: Tensor, target_in: Tensor, *kinds: str) -> list[AttentionMap]:
    """source (1, source time), target_in (1, target time); of these kinds, or of all."""
    assert isinstance(model, nn.Module), "models are modules"
    wanted = {name: kind for name, kind in attentions(model).items() if not kinds or kind.name in kinds}
    if not wanted:
        return []
    with forced(model), record(model, *wanted) as seen:
        model.step(target_in, model.start(source, None, room=0))
    recorded = {name: kind for name, kind in wanted.items() if name in seen}  # an empty source is not read
    return [AttentionMap(name, kind, layer_of(name), seen[name][0]) for name, kind in recorded.items()]


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Without dropout; the model is left as it was. One in evaluation mode is not written to, so threads can share it."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def with_shared_weights(model: AnyModel) -> AnyModel:
    """A copy of the modules around the same tensors, with the same hooks on its taps. Hooks of torch's that are registered on
    the copy are not called for other users of the model."""
    assert isinstance(model, nn.Module), "models are modules"
    shared: dict[int, Any] = {}
    for module in model.modules():
        held = (*module._parameters.values(), *module._buffers.values(), *vars(module).values())
        shared |= {id(one): one for one in held if isinstance(one, Tensor)}
    copied = copy.deepcopy(model, shared)
    for mine, theirs in zip(hook_points(copied).values(), hook_points(model).values(), strict=True):
        mine.hooks.extend(theirs.hooks)
    return copied


@contextmanager
def forced(model: nn.Module) -> Iterator[None]:
    """Without dropout and without gradients."""
    with eval_mode(model), torch.inference_mode():
        yield


@contextmanager
def differentiable(model: nn.Module) -> Iterator[None]:
    """Without dropout, with gradients."""
    with eval_mode(model), torch.inference_mode(False), torch.enable_grad():
        yield


def core_of(model: nn.Module, name: str) -> str:
    """The path of the module that computes the attention weights at this hook point; several layers may share its owner."""
    owner = name.removesuffix(".weights")
    return f"{owner}.core" if hasattr(model.get_submodule(owner), "core") else owner


def layer_of(name: str) -> int:
    """The first number in a tap's name; where there is none, the model has one such layer."""
    found = re.search(r"\.(\d+)\.", name)
    return int(found[1]) if found else 0
