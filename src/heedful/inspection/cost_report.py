"""What a model costs at work, in three scenes: a training step, reading, and saying one more token.

Beside them memory: the weights, what training keeps besides (gradients, Adam's two averages, activations), and the cache
that grows with every token said: 2 N n dim numbers for the N layers of a Transformer and n tokens.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import gcd
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from heedful.inspection.cost import Cost, CostRecord, count_costs, on_meta_device, part_of, tensors, total
from heedful.nn.decoder_state import State
from heedful.nn.sequence_layers import SEQUENCE_LAYERS, LayerSize
from heedful.nn.torch_private import storage_id

PARTS = 32  # of a recurrence, one of which is counted
UPDATE = 7  # Adam reads a weight, its gradient and its two averages, and writes all but the gradient


class Size(NamedTuple):
    rows: int  # sentences at a time
    source: int  # tokens of each
    target: int


class Memory(NamedTuple):
    """Bytes, all numbers in the weights' precision."""

    weights: int
    gradients: int
    optimizer: int
    activations: int  # kept from the forward to the backward pass of a training step
    cache: int  # of what was read and what was said, when all is said


def training_step(model: nn.Module, size: Size) -> CostRecord:
    """Forwards, backwards and the update. The backward pass and the update are parts of their own."""
    paper: Any = on_meta_device(model).train()
    source, target = tokens(size.rows, size.source), tokens(size.rows, size.target)
    with count_costs(paper) as bill:
        step = paper.step(target, paper.start(source, None, room=0))
        logits = paper.project(step.hidden)
        with bill.at("loss"):
            loss = functional.cross_entropy(logits.flatten(0, 1).float(), target.flatten())
        with bill.at("backward"):
            loss.backward()  # type: ignore[no-untyped-call]
    with bill.at("update"):
        bill.charge(Cost(0, UPDATE * size_of(model.parameters())))
    return bill


@torch.no_grad()
def encoding(model: nn.Module, size: Size) -> CostRecord:
    paper: Any = on_meta_device(model).eval()
    with count_costs(paper) as bill:
        paper.start(tokens(size.rows, size.source), None, room=size.target)
    return bill


@torch.no_grad()
def decoding(model: nn.Module, size: Size) -> CostRecord:
    """The last token of the target."""
    paper: Any = on_meta_device(model).eval()
    state = last_decoding_step(paper, size)
    with count_costs(paper) as bill:
        paper.project(paper.step(tokens(size.rows, 1), state).hidden)
    return bill


def last_decoding_step(paper: Any, size: Size) -> State:
    with count_costs(paper):
        state: State = paper.start(tokens(size.rows, size.source), None, room=size.target)
        return state if size.target == 1 else paper.step(tokens(size.rows, size.target - 1), state).state


PHASES = {"a training step": training_step, "reading": encoding, "saying one token": decoding}


def memory(model: nn.Module, size: Size) -> Memory:
    weights = size_of(model.parameters())
    activations = sum(size for _, size in training_step(model, size).kept.values())
    with torch.no_grad():
        state = last_decoding_step(on_meta_device(model).eval(), size)
    return Memory(weights, weights, 2 * weights, activations, size_of(tensors((state.memory, state.row_state, state.kv_cache))))


def parameters_by_part(model: nn.Module, parts: Collection[str]) -> dict[str, int]:
    """How many weights each of the parts of a bill has. Those that several share belong to the first that is at work."""
    names: dict[nn.Parameter, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(part_of(name.rpartition(".")[0]))
    names.get(borrowed_by_readout(model), []).append("readout")
    found: dict[str, int] = {}
    for parameter, owners in names.items():
        owner = next((one for one in owners if one in parts), owners[0])
        found[owner] = found.get(owner, 0) + parameter.numel()
    return found


def borrowed_by_readout(model: Any) -> nn.Parameter:
    """The words that are said are compared with a table, which another part may own."""
    weight: nn.Parameter = model.readout.weight
    return weight


def size_of(several: Iterable[Tensor]) -> int:
    """Bytes, each storage counted once."""
    return sum({storage_id(one.untyped_storage()): one.untyped_storage().nbytes() for one in several}.values())


def tokens(rows: int, time: int) -> Tensor:
    return torch.zeros(rows, time, dtype=torch.long, device="meta")


class Kind(NamedTuple):
    """A kind of sequence layer, what is said of it, and what one layer does to n tokens and to twice as many."""

    name: str
    formula: str
    steps: str  # that must follow one another
    path: str  # between the tokens that are farthest apart
    products: str  # FLOP of its matrix products, as a formula
    remark: str  # what explains it
    once: Cost
    twice: Cost


def kinds(size: LayerSize, time: int) -> list[Kind]:
    """The complexity table of "Attention Is All You Need", counted: what doubling the length does to each kind of layer.

    A recurrence does the same at every step, so a part of its steps is counted, and taken as often as there are such parts."""
    found = []
    for name, made in SEQUENCE_LAYERS.items():
        layer = made(size).to("meta").eval()
        parts = gcd(PARTS, time) if made.steps == "n" else 1
        costs = []
        for length in (time, 2 * time):
            with torch.no_grad(), count_costs(layer) as bill:
                layer(torch.empty(1, length // parts, size.dim, device="meta"))
            once = total(list(bill.parts.values()))
            costs.append(Cost(parts * once.work, parts * once.traffic))
        found.append(Kind(name, made.cost, made.steps, made.path, made.products(causal=size.causal), made.remark, *costs))
    return found
