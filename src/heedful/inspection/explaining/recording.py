"""What one layer's attention was given and what it gave, in one forced pass over a sentence and its translation.

Queries, keys, values and who may look where are heard at the module that looks, whatever family it belongs to; x at the
linear maps before it, and what becomes of it at the map behind it.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor, nn

from heedful.errors import ConfigError
from heedful.inspection.attention_maps import StepModel, copy_with_shared_weights, core_of, inference_context
from heedful.nn.attention import CrossAttention, SelfAttention
from heedful.nn.attention_pattern import FullPattern
from heedful.nn.hooks import record
from heedful.nn.positions import Rotary
from heedful.nn.scores import SourceAttention

Calls = list[tuple[tuple[Any, ...], Any]]  # (inputs, output) of every call of a module


class TokenPair(NamedTuple):
    """A sentence and what was made of it."""

    source: Tensor  # (1, source time)
    target_in: Tensor  # (1, target time)


class RecordedAttention(NamedTuple):
    owner: nn.Module  # the attention, with the maps before and behind its look-up
    looking: Calls  # of the look-up itself
    around: dict[str, Calls]  # of the owner's parts, by name
    weights: Tensor  # (1, heads, query, key), from the tap
    found: Tensor  # (1, heads, query, head_dim), from the tap
    reads: bool  # heard while the source was read, not while the target was said
    rotary: bool  # whether positions turn queries and keys where a sequence looks at itself


PARTS: dict[type[nn.Module], tuple[str, ...]] = {
    SelfAttention: ("project", "out"),
    CrossAttention: ("query", "memory", "out"),
    SourceAttention: ("score", "scope"),
}


def record_attention(model: StepModel, pair: TokenPair, tap: str) -> RecordedAttention:
    """tap: the one that hears the weights of the layer."""
    model = copy_with_shared_weights(model)
    assert isinstance(model, nn.Module), "models are modules"
    looking, owner_name = core_of(model, tap), tap.removesuffix(".weights")
    reads = owner_name.endswith(".reading")  # the source, by a look-up that shares the maps of the target's
    if reads:
        owner_name = f"{owner_name.removesuffix('.reading')}.self_attention"
    owner = model.get_submodule(owner_name)
    refuse_summaries(model.get_submodule(owner_name.rpartition(".")[0]))
    parts = [name for name in PARTS.get(type(owner), ()) if getattr(owner, name) is not None]
    calls: dict[str, Calls] = {name: [] for name in [looking, *(f"{owner_name}.{part}" for part in parts)]}

    def keep(name: str, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        calls[name].append((inputs, output))

    with ExitStack() as stack:
        for name in calls:
            stack.callback(model.get_submodule(name).register_forward_hook(partial(keep, name)).remove)
        stack.enter_context(inference_context(model))
        seen = stack.enter_context(record(model, tap, f"{tap.removesuffix('weights')}context"))
        model.step(pair.target_in, model.start(pair.source, None, room=0))
    rotary = isinstance(owner, SelfAttention) and any(isinstance(module, Rotary) for module in model.modules())
    around = {part: calls[f"{owner_name}.{part}"] for part in parts}
    return RecordedAttention(
        owner, calls[looking], around, seen[tap], seen[f"{tap.removesuffix('weights')}context"], reads, rotary
    )


def refuse_summaries(layer: nn.Module) -> None:
    """Keys that are not made of one token each cannot be shown beside the tokens."""
    reach = getattr(layer, "reach", None)
    if reach is not None and type(reach) is not FullPattern:
        kind = type(reach).__name__.lower()
        raise ConfigError(
            f"this layer has reach {kind!r} and looks at blocks or summaries of tokens; expected a layer with reach 'full'",
            hint="choose another one with --layer",
        )
