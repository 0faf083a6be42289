"""Attention maps: the attention weights of every layer and head of a model of any family.

    for attention in attention_maps(model, source, target_in):
        attention.kind, attention.layer, attention.weights        # Kind("cross", …), 0, (heads, query, key)

The weights are recorded in one teacher-forced pass over the finished target, not during search. KINDS maps names of hook points
to kinds of attention; a family that uses one of these names is supported.
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
    """A kind of attention: its name and the sequences of its queries and keys."""

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
    """The attention weights of one kind in one layer."""

    name: str  # of the hook point
    kind: Kind
    layer: int
    weights: Tensor  # (heads, query, key)


class StepModel(Protocol):
    """A model that encodes a source and decodes a given target."""

    def start(self, source: Tensor, source_mask: Tensor | None, *, room: int) -> State: ...

    def step(self, tokens: Tensor, state: State, mask: Tensor | None = None) -> Step: ...


def kind_of(name: str) -> Kind | None:
    """Return the kind of attention at the hook point of this name; None if it does not record attention weights."""
    return next((kind for pattern, kind in KINDS.items() if fnmatchcase(name, pattern)), None)


def attentions(model: nn.Module) -> dict[str, Kind]:
    """Return the hook points that record attention weights, in the order of the model."""
    return {name: kind for name in hook_points(model) if (kind := kind_of(name)) is not None}


def attention_maps(model: StepModel, source: Tensor, target_in: Tensor, *kinds: str) -> list[AttentionMap]:
    """Return the attention weights of these kinds (default: all). source (1, source time), target_in (1, target time)."""
    assert isinstance(model, nn.Module), "models are modules"
    selected = {name: kind for name, kind in attentions(model).items() if not kinds or kind.name in kinds}
    if not selected:
        return []
    with inference_context(model), record(model, *selected) as recorded:
        model.step(target_in, model.start(source, None, room=0))
    executed = {name: kind for name, kind in selected.items() if name in recorded}  # an empty source is not encoded
    return [AttentionMap(name, kind, layer_of(name), recorded[name][0]) for name, kind in executed.items()]


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Disable dropout; restore modes on exit. A model in evaluation mode is not modified, so threads can share it."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def copy_with_shared_weights(model: AnyModel) -> AnyModel:
    """Copy the modules but share their tensors and the hooks on their hook points. Torch hooks registered on the copy do not
    affect other users of the model."""
    assert isinstance(model, nn.Module), "models are modules"
    shared: dict[int, Any] = {}
    for module in model.modules():
        tensors = (*module._parameters.values(), *module._buffers.values(), *vars(module).values())
        shared |= {id(value): value for value in tensors if isinstance(value, Tensor)}
    copied = copy.deepcopy(model, shared)
    for point, original in zip(hook_points(copied).values(), hook_points(model).values(), strict=True):
        point.hooks.extend(original.hooks)
    return copied


@contextmanager
def inference_context(model: nn.Module) -> Iterator[None]:
    """Disable dropout and gradients."""
    with eval_mode(model), torch.inference_mode():
        yield


@contextmanager
def gradient_context(model: nn.Module) -> Iterator[None]:
    """Disable dropout and enable gradients."""
    with eval_mode(model), torch.inference_mode(False), torch.enable_grad():
        yield


def core_of(model: nn.Module, name: str) -> str:
    """Return the path of the module that computes the weights at this hook point; several layers may share its owner."""
    owner = name.removesuffix(".weights")
    return f"{owner}.core" if hasattr(model.get_submodule(owner), "core") else owner


def layer_of(name: str) -> int:
    """Return the first number in the name of a hook point; 0 if the model has only one such layer."""
    match = re.search(r"\.(\d+)\.", name)
    return int(match[1]) if match else 0
