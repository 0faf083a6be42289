"""The cost of a model in its phases: a training step, encoding, decoding one token, prediction of labels.

Memory: the weights, gradients, Adam's two moment estimates, activations, and the key/value cache, which grows with every
generated token: 2 N n dim values for the N layers of a Transformer and n tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from math import gcd
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from heedful.inspection.measures.cost import (
    Cost,
    CostRecord,
    count_costs,
    on_meta_device,
    part_of,
    paths_in_base,
    tensors,
    total,
)
from heedful.nn.decoder_state import State
from heedful.nn.linear import Readout
from heedful.nn.model import Model
from heedful.nn.sequence_layers import SEQUENCE_LAYERS, LayerSize
from heedful.nn.torch_private import storage_id

PARTS = 256  # a recurrence is split into, one of which is counted
UPDATE = 7  # Adam reads a weight, its gradient and two moments, and writes all but the gradient


class Size(NamedTuple):
    rows: int  # sentences in a batch
    source: int  # tokens per sentence; 0: no source
    target: int


class Memory(NamedTuple):
    """Bytes, all in the precision of the weights."""

    weights: int
    gradients: int
    optimizer: int
    activations: int  # saved for the backward pass of a training step
    cache: int  # decoder state after the last token; 0: nothing is decoded


def training_step(model: nn.Module, size: Size) -> CostRecord:
    """Count forward pass, backward pass and update. The backward pass and the update are separate parts."""
    model_on_meta: Any = on_meta_device(model).train()
    source, target = tokens(size.rows, size.source), tokens(size.rows, size.target)
    with count_costs(model_on_meta) as record:
        logits = model_on_meta.batch_logits(source, target).flatten(0, -2)  # (predictions, classes)
        with record.at("loss"):
            labels = target.flatten() if len(logits) <= target.numel() else target.new_zeros(len(logits))
            loss = functional.cross_entropy(logits.float(), labels[: len(logits)])
        with record.at("backward"):
            loss.backward()  # type: ignore[no-untyped-call]
    with record.at("update"):
        record.charge(Cost(0, UPDATE * size_of(model.parameters())))
    return record


@torch.no_grad()
def encoding(model: nn.Module, size: Size) -> CostRecord:
    """Count encoding the source."""
    model_on_meta: Any = on_meta_device(model).eval()
    with count_costs(model_on_meta) as record:
        model_on_meta.start(tokens(size.rows, size.source), None, room=size.target)
    return record


@torch.no_grad()
def decoding(model: nn.Module, size: Size) -> CostRecord:
    """Count decoding the last token of the target."""
    model_on_meta: Any = on_meta_device(model).eval()
    with count_costs(model_on_meta):  # masks that are computed once per process
        model_on_meta.step(tokens(size.rows, 1), last_decoding_step(model_on_meta, size))
    state = last_decoding_step(model_on_meta, size)
    with count_costs(model_on_meta) as record:
        model_on_meta.project(model_on_meta.step(tokens(size.rows, 1), state).hidden)
    return record


def last_decoding_step(model_on_meta: Any, size: Size) -> State:
    """Return the decoder state before the last token of the target."""
    with count_costs(model_on_meta):
        state: State = model_on_meta.start(tokens(size.rows, size.source), None, room=size.target)
        return state if size.target == 1 else model_on_meta.step(tokens(size.rows, size.target - 1), state).state


@torch.no_grad()
def prediction(model: nn.Module, size: Size) -> CostRecord:
    """Count the prediction of labels."""
    model_on_meta: Any = on_meta_device(model).eval()
    with count_costs(model_on_meta) as record:
        model_on_meta.batch_logits(tokens(size.rows, size.source), tokens(size.rows, size.target))
    return record


PHASES: dict[str, Callable[[nn.Module, Size], CostRecord]] = {
    "training step": training_step,
    "encoding": encoding,
    "decoding one token": decoding,
    "prediction": prediction,
}


def memory(model: nn.Module, size: Size, *, decodes: bool = True, step: CostRecord | None = None) -> Memory:
    """decodes: whether the model has a decoder state; step: its training step, if it has been counted already."""
    weights = size_of(model.parameters())
    activations = sum(size for _, size in (step or training_step(model, size)).kept.values())
    cache = 0
    if decodes:
        with torch.no_grad():
            state = last_decoding_step(on_meta_device(model).eval(), size)
        cache = size_of(tensors((state.memory, state.row_state, state.kv_cache)))
    return Memory(weights, weights, 2 * weights, activations, cache)


def parameters_by_part(model: Model, parts: Collection[str]) -> dict[str, int]:
    """Return the number of parameters of each part. Shared parameters belong to the first part that runs."""
    paths = paths_in_base(model)
    names: dict[nn.Parameter, list[str]] = {}
    for module, path in paths.items():
        for parameter in module.parameters(recurse=False):
            names.setdefault(parameter, []).append(part_of(path))
    for module, path in paths.items():
        if isinstance(module, Readout):  # its weight is that of an embedding
            for parameter in module.tables[0].parameters():
                names[parameter].append(part_of(path))
    counts: dict[str, int] = {}
    for parameter, owners in names.items():
        owner = next((name for name in owners if name in parts), owners[0])
        counts[owner] = counts.get(owner, 0) + parameter.numel()
    return counts


def size_of(operands: Iterable[Tensor]) -> int:
    """Return the bytes of all tensors, each storage counted once."""
    return sum({storage_id(tensor.untyped_storage()): tensor.untyped_storage().nbytes() for tensor in operands}.values())


def tokens(rows: int, time: int) -> Tensor:
    return torch.zeros(rows, time, dtype=torch.long, device="meta")


class LayerCost(NamedTuple):
    """A kind of sequence layer with its complexity, and the counted cost of one layer for n and for 2 n tokens."""

    name: str
    formula: str
    steps: str  # sequential operations
    path: str  # maximum path length between tokens
    products: str  # FLOP of its matrix products, as a formula
    remark: str
    once: Cost
    twice: Cost


def layer_costs(size: LayerSize, time: int) -> list[LayerCost]:
    """The complexity table of "Attention Is All You Need", counted: cost of each kind of layer at length `time` and twice that.

    A recurrence repeats the same step, so one part of its steps is counted and multiplied by the number of parts."""
    results = []
    for name, layer_class in SEQUENCE_LAYERS.items():
        layer = layer_class(size).to("meta").eval()
        parts = gcd(PARTS, time) if layer_class.steps == "n" else 1
        costs = []
        for length in (time, 2 * time):
            with torch.no_grad(), count_costs(layer) as record:
                layer(torch.empty(1, length // parts, size.dim, device="meta"))
            once = total(list(record.parts.values()))
            costs.append(Cost(parts * once.work, parts * once.traffic))
        results.append(
            LayerCost(
                name,
                layer_class.cost,
                layer_class.steps,
                layer_class.path,
                layer_class.products(causal=size.causal),
                layer_class.remark,
                *costs,
            )
        )
    return results
