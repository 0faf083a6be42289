"""FLOP, bytes moved and memory of every part of a model, and whether it is compute- or memory-bound on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import gcd
from typing import Any, ClassVar

import torch

from heedful.evaluation.tables import table
from heedful.inspection.drawing.figure import Figure, heatmap
from heedful.inspection.measures import hardware_limits
from heedful.inspection.measures.cost import CostRecord, total
from heedful.inspection.measures.cost_report import (
    PHASES,
    LayerCost,
    Memory,
    Size,
    layer_costs,
    memory,
    parameters_by_part,
)
from heedful.inspection.measures.hardware_limits import Limits
from heedful.inspection.page.blocks import Block, Heading, Table, Words, sentence
from heedful.inspection.result import Result
from heedful.nn.sequence_layers import LayerSize
from heedful.tasks.predictor import Predictor

LEGEND = (
    "FLOP: matrix products only, 2 for a multiplication and an addition; norms, sums and the update count as bytes moved. "
    "Attention is one fused kernel that does not write its scores to memory. Between: operations outside the named parts, such "
    "as masks and concatenation. Saved: activations for the backward pass"
)
MEMORY = (
    "Training holds weights, gradients, optimizer state and the activations saved for the backward pass; decoding holds "
    "weights and the cache, here at its full length. Bars: relative to the largest."
)
LENGTH, WINDOW = 1024, 64  # sequence length for the comparison of layer types, and window of restricted attention


@dataclass(frozen=True)
class PartCost:
    """The cost of one part of the model in one phase."""

    part: str  # all: the total
    parameters: int
    kept: int  # bytes saved for the backward pass
    work: int  # FLOP
    traffic: int  # bytes moved
    intensity: float  # FLOP per byte
    seconds: float  # minimum, at the machine's peak FLOP/s and bandwidth
    bound_by: str  # memory or compute


@dataclass(frozen=True)
class CostResult(Result):
    """The result of `cost`.

    >>> result = heedful.inspection.cost(translator, rows=8)
    >>> result.parameters == sum(parameter.numel() for parameter in translator.model.parameters())
    True
    """

    analysis: ClassVar[str] = "cost"

    rows: int  # batch size
    tokens: int  # per sentence, on either side
    parameters: int
    machine: Limits
    phases: dict[str, list[PartCost]]  # the total last
    memory: Memory
    layer: LayerSize  # of the compared layer types
    kinds: list[LayerCost]

    @property
    def title(self) -> str:
        return "Cost"

    def options(self) -> dict[str, Any]:
        return {"rows": self.rows, "tokens": self.tokens}

    def to_dict(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "tokens": self.tokens,
            "parameters": self.parameters,
            "machine": self.machine._asdict() | {"ridge": self.machine.ridge},
            "phases": {name: [asdict(part) for part in parts] for name, parts in self.phases.items()},
            "memory": self.memory._asdict(),
            "layer": {"dim": self.layer.dim, "tokens": LENGTH, "window": self.layer.window, "kernel": self.layer.kernel},
            "kinds": [layer_to_dict(kind) for kind in self.kinds],
        }

    def text(self) -> str:
        text = [
            f"{self.parameters:,} parameters; {self.rows} sentences of {self.tokens} tokens",
            f"this machine: {self.peaks}; memory-bound below {self.machine.ridge:.1f} FLOP per byte",
            LEGEND,
        ]
        text += [f"\n{name}\n{table(part_rows(parts))}" for name, parts in self.phases.items()]
        sizes = self.memory._asdict().items()
        text.append("\nmemory\n" + table([(name, f"{format_number(size)}B") for name, size in sizes]))
        text.append(f"\nlayer types, {self.layer_size}\n{table(self.layer_rows())}")
        return "\n".join(text + self.remarks())

    def blocks(self) -> list[Block]:
        blocks: list[Block] = [
            Words(f"{self.parameters:,} parameters; a batch of {self.rows} sentences of {self.tokens} tokens."),
            Words(
                f"This machine: {self.peaks}. A part with fewer than {self.machine.ridge:.1f} FLOP per byte is memory-bound: a "
                "faster processor would not speed it up (roofline model, Williams et al., 2009).",
                "note",
            ),
            Words(f"{LEGEND}. Minimum time: at the machine's peak FLOP/s and bandwidth.", "hint"),
        ]
        for name, parts in self.phases.items():
            blocks += phase_blocks(name, parts)
        sizes = self.memory._asdict()
        kept = [("", "size"), *((name, f"{format_number(size)}B") for name, size in sizes.items())]
        bars = {1: [size / max(sizes.values()) for size in sizes.values()]}
        blocks += [Heading("Memory"), Words(MEMORY, "hint"), Table(kept, "memory", bars)]
        compared = f"{self.layer_size}. Sequential: steps that cannot run in parallel."
        kinds = [[cell.replace("^2", "²") for cell in row] for row in self.layer_rows()]
        blocks += [Heading("Layer types"), Words(compared, "hint"), Table(kinds, "layer types")]
        return [*blocks, *(Words(sentence(text), "hint") for text in self.remarks())]

    def figure(self) -> Figure:
        """Parts (rows) and phases (columns): share of the minimum time of a phase."""
        shares = {name: dict(zip(parts_of(parts), time_shares(parts), strict=True)) for name, parts in self.phases.items()}
        rows = list(dict.fromkeys(part for parts in shares.values() for part in parts))
        values = torch.tensor([[parts.get(row, 0.0) for parts in shares.values()] for row in rows])
        return heatmap(values, rows, list(shares), "share of the minimum time of each phase", float(values.max()))

    @property
    def peaks(self) -> str:
        return f"{format_number(self.machine.operations)}FLOP/s, {format_number(self.machine.bytes)}B/s"

    @property
    def layer_size(self) -> str:
        layer = self.layer
        sizes = f"d = {layer.dim}, n = {LENGTH:,} tokens, r = {layer.window}, k = {layer.kernel}"
        return f"{sizes}; operations: order of growth; FLOP: all matrix products of one layer of this library"

    def layer_rows(self) -> list[tuple[str, ...]]:
        """The table of layer types."""
        rows = [
            (
                *(kind.name, kind.formula, kind.steps, kind.path),
                format_number(kind.once.work),
                kind.products,
                f"{kind.twice.work / kind.once.work:.1f} x",
            )
            for kind in self.kinds
        ]
        return [("layer", "operations", "sequential", "longest path", "FLOP", "formula", "if n doubles"), *rows]

    def remarks(self) -> list[str]:
        """Explanations of the formulas, each once."""
        kinds: dict[str, list[str]] = {}
        for kind in self.kinds:
            kinds.setdefault(kind.remark, []).append(kind.name)
        return [f"{', '.join(names)}: {remark}." for remark, names in kinds.items() if remark]


def cost(predictor: Predictor, rows: int = 32, tokens: int = 32) -> CostResult:
    """FLOP, bytes moved and memory of every part, in each phase of the task: a training step, encoding, decoding, prediction.

    rows: batch size; tokens: per sentence, on either side. Costs are counted, not timed; only the peak FLOP/s and bandwidth of
    this machine are measured.

    >>> result = heedful.inspection.cost(translator, rows=8)
    >>> list(result.phases)
    ['training step', 'encoding', 'decoding one token']
    >>> flop = result.phases["training step"][-1].work
    """
    model = predictor.model
    size = Size(rows, tokens if predictor.has_source else 0, tokens)
    limits = hardware_limits.measure(predictor.system.device)
    dim = getattr(predictor.run.model, "dim", 512)
    layer = LayerSize(dim=dim, heads=gcd(8, dim), window=WINDOW, causal=bool(dim % 2))  # bidirectional layers need an even dim
    records = {name: PHASES[name](model, size) for name in predictor.phases}
    return CostResult(
        rows=rows,
        tokens=tokens,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        machine=limits,
        phases={name: list_parts(one, limits, parameters_by_part(model, one.parts)) for name, one in records.items()},
        memory=memory(model, size, decodes="decoding one token" in records, step=records.get("training step")),
        layer=layer,
        kinds=layer_costs(layer, LENGTH),
    )


def list_parts(record: CostRecord, limits: Limits, parameters: dict[str, int]) -> list[PartCost]:
    """Every part that moves data, the total last; parameters: of each part."""
    whole = total(list(record.parts.values()))
    return [
        PartCost(
            part=name,
            parameters=sum(parameters.get(part, 0) for part in (record.parts if name == "all" else [name])),
            kept=sum(size for _, size in record.kept.values()) if name == "all" else record.kept_by(name),
            work=cost.work,
            traffic=cost.traffic,
            intensity=cost.intensity,
            seconds=max(cost.work / limits.operations, cost.traffic / limits.bytes),
            bound_by="memory" if cost.intensity < limits.ridge else "compute",
        )
        for name, cost in {**record.parts, "all": whole}.items()
        if cost.traffic
    ]


def layer_to_dict(kind: LayerCost) -> dict[str, Any]:
    texts = {"formula": kind.formula, "steps": kind.steps, "path": kind.path, "products": kind.products, "remark": kind.remark}
    return {"kind": kind.name, **texts, "work": kind.once.work, "growth": kind.twice.work / kind.once.work}


def phase_blocks(name: str, parts: Sequence[PartCost]) -> list[Block]:
    shares = time_shares(parts)
    cells = ["share of time", *(f"{share:.1%}" for share in shares), "100%"]
    shown = [(row[0], text, *row[1:]) for row, text in zip(part_rows(parts), cells, strict=True)]
    bars = {1: [*shares, None]}
    return [
        Heading(name.capitalize()),
        Words(format_memory_bound(parts)),
        Table(shown, f"{name}, by part", bars, totals=1),
    ]


def parts_of(parts: Sequence[PartCost]) -> list[str]:
    """The names of the parts, without the total."""
    return [one.part for one in parts[:-1]]


def time_shares(parts: Sequence[PartCost]) -> list[float]:
    """The share of each part in the sum of their minimum times."""
    *several, _ = parts
    return [one.seconds / sum(other.seconds for other in several) for one in several]


def format_memory_bound(parts: Sequence[PartCost]) -> str:
    shares = [share for one, share in zip(parts, time_shares(parts), strict=False) if one.bound_by == "memory"]
    return f"{len(shares)} of {len(parts) - 1} parts are memory-bound, {sum(shares):.0%} of the time."


def part_rows(parts: Sequence[PartCost]) -> list[tuple[str, ...]]:
    kept = any(one.kept for one in parts)
    head = ("part", "parameters", *(["saved"] if kept else []), "FLOP", "bytes moved", "FLOP/byte", "minimum time", "bound by")
    return [
        head,
        *(
            (
                one.part,
                f"{one.parameters:,}" if one.parameters else "",
                *([f"{format_number(one.kept)}B" if one.kept else ""] if kept else []),
                format_number(one.work) if one.work else "",
                format_number(one.traffic),
                f"{one.intensity:.1f}" if one.work else "",
                f"{1000 * one.seconds:.3f} ms",
                one.bound_by,
            )
            for one in parts
        ),
    ]


def format_number(number: float) -> str:
    """12345678 -> 12.3 M."""
    for power, name in ((12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if number >= 10**power:
            return f"{number / 10**power:.1f} {name}"
    return f"{number:.0f} "
