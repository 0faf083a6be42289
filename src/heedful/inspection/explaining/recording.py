"""Inputs and outputs of one attention layer, recorded in one teacher-forced pass over an example.

Forward hooks record queries, keys, values and masks at the module that computes attention, in any model family; x at the
linear projections before it, and the layer's output at the output projection.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor, nn

from heedful.errors import ConfigError
from heedful.nn.attention import CrossAttention, SelfAttention
from heedful.nn.attention_pattern import FullPattern
from heedful.nn.hooks import record
from heedful.nn.model import READING, Model, copy_with_shared_weights, inference_context
from heedful.nn.positions import Rotary
from heedful.nn.scores import SourceAttention
from heedful.tasks.encoded_example import Forward

Calls = list[tuple[tuple[Any, ...], Any]]  # (inputs, output) of every call of a module


class RecordedAttention(NamedTuple):
    owner: nn.Module  # the attention module, with its projections
    core_calls: Calls  # of the module that computes attention from queries, keys and values
    part_calls: dict[str, Calls]  # of the owner's submodules, by name
    weights: Tensor  # (1, heads, query, key), from the hook point
    context: Tensor  # (1, heads, query, head_dim), from the hook point
    encodes_source: bool  # recorded while the source was encoded, not while the target was decoded
    rotary: bool  # whether rotary positions rotate the queries and keys of self-attention


PARTS: dict[type[nn.Module], tuple[str, ...]] = {
    SelfAttention: ("project", "out"),
    CrossAttention: ("query", "memory", "out"),
    SourceAttention: ("score", "scope"),
}


def record_attention(model: Model, forward: Forward, hook_point: str) -> RecordedAttention:
    """Record one layer in the pass over an example.

    hook_point: the one of its attention weights, such as `decoder.0.cross_attention.weights`."""
    model = copy_with_shared_weights(model)
    attention = next(one for one in model.attentions() if one.weights == hook_point)
    owner = attention.module
    require_full_attention(next((block for block in model.blocks() if owner in block.modules()), owner))
    parts = {name: getattr(owner, name) for name in PARTS.get(type(owner), ()) if getattr(owner, name) is not None}
    core_calls: Calls = []
    part_calls: dict[str, Calls] = {name: [] for name in parts}

    def keep(calls: Calls, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        calls.append((inputs, output))

    with ExitStack() as stack:
        for module, calls in ((attention.core, core_calls), *((parts[name], part_calls[name]) for name in parts)):
            stack.callback(module.register_forward_hook(partial(keep, calls)).remove)
        stack.enter_context(inference_context(model))
        recorded = stack.enter_context(record(model, attention.weights, attention.context))
        forward(model, 1)
    rotary = isinstance(owner, SelfAttention) and any(isinstance(module, Rotary) for module in model.modules())
    weights, context = recorded[attention.weights], recorded[attention.context]
    return RecordedAttention(owner, core_calls, part_calls, weights, context, attention.kind == READING, rotary)


def require_full_attention(layer: nn.Module) -> None:
    """Raise an error for sparse patterns: keys that combine several tokens cannot be labeled by tokens."""
    reach = getattr(layer, "reach", None)
    if reach is not None and type(reach) is not FullPattern:
        kind = type(reach).__name__.lower()
        raise ConfigError(
            f"this layer has reach {kind!r} and attends to blocks or summaries of tokens; expected a layer with reach 'full'",
            hint="choose another one with --layer",
        )
