"""heed inspect RUN --cost: FLOP, bytes moved and memory of every part, and whether it is compute- or memory-bound here."""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, Any

from heedful.cli.output import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from heedful.inspection.measures.cost import CostRecord
    from heedful.inspection.measures.hardware_limits import Limits
    from heedful.inspection.report.blocks import Block
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


def compute(worker: Predictor, *, rows: int = 32, tokens: int = 32) -> dict[str, Any]:
    """rows: batch size; tokens: per sentence, on either side."""
    from heedful.errors import ConfigError
    from heedful.inspection.measures.cost_report import PHASES, Size, layer_costs, memory, parameters_by_part
    from heedful.inspection.measures.hardware_limits import measure
    from heedful.nn.sequence_layers import LayerSize

    if worker.run.task.name not in ("translation", "language"):
        raise ConfigError(f"--cost: given a run of task {worker.run.task.name!r}, expected a run of: translation, language")
    model: Any = worker.model
    size, limits = Size(rows, tokens, tokens), measure(worker.system.device)
    width = getattr(worker.run.model, "dim", 512)
    layer = LayerSize(
        dim=width, heads=gcd(8, width), window=WINDOW, causal=bool(width % 2)
    )  # bidirectional layers require an even dim
    records = {name: count(model, size) for name, count in PHASES.items()}
    return {
        "rows": rows,
        "tokens": tokens,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "machine": {"operations": limits.operations, "bytes": limits.bytes, "ridge": limits.ridge},
        "phases": {name: list_parts(one, limits, parameters_by_part(model, one.parts)) for name, one in records.items()},
        "memory": memory(model, size)._asdict(),
        "layer": {"dim": width, "tokens": LENGTH, "window": layer.window, "kernel": layer.kernel},
        "kinds": [
            {
                "kind": kind.name,
                "formula": kind.formula,
                "steps": kind.steps,
                "path": kind.path,
                "products": kind.products,
                "remark": kind.remark,
                "work": kind.once.work,
                "growth": kind.twice.work / kind.once.work,
            }
            for kind in layer_costs(layer, LENGTH)
        ],
    }


def list_parts(record: CostRecord, limits: Limits, parameters: dict[str, int]) -> list[dict[str, Any]]:
    """Every part that moves data, the total last; parameters: of each part."""
    from heedful.inspection.measures.cost import total

    whole = total(list(record.parts.values()))
    return [
        {
            "part": name,
            "parameters": sum(parameters.get(part, 0) for part in (record.parts if name == "all" else [name])),
            "kept": sum(size for _, size in record.kept.values()) if name == "all" else record.kept_by(name),
            "work": cost.work,
            "traffic": cost.traffic,
            "intensity": cost.intensity,
            "seconds": max(cost.work / limits.operations, cost.traffic / limits.bytes),
            "bound_by": "memory" if cost.intensity < limits.ridge else "compute",
        }
        for name, cost in {**record.parts, "all": whole}.items()
        if cost.traffic
    ]


def format_text(result: dict[str, Any]) -> str:
    machine = result["machine"]
    text = [
        f"{result['parameters']:,} parameters; {result['rows']} sentences of {result['tokens']} tokens",
        f"this machine: {format_number(machine['operations'])}FLOP/s, {format_number(machine['bytes'])}B/s; "
        f"memory-bound below {machine['ridge']:.1f} FLOP per byte",
        LEGEND,
    ]
    text += [f"\n{name}\n{table(part_rows(parts))}" for name, parts in result["phases"].items()]
    text.append("\nmemory\n" + table([(name, f"{format_number(size)}B") for name, size in result["memory"].items()]))
    text.append(f"\nlayer types, {format_layer_size(result['layer'])}\n{table(layer_rows(result))}")
    text += remarks(result)
    return "\n".join(text)


def format_blocks(result: dict[str, Any]) -> list[Block]:
    from heedful.inspection.report.blocks import Heading, Table, Words, sentence

    machine = result["machine"]
    blocks: list[Block] = [
        Words(f"{result['parameters']:,} parameters; a batch of {result['rows']} sentences of {result['tokens']} tokens."),
        Words(
            f"This machine: {format_number(machine['operations'])}FLOP/s, {format_number(machine['bytes'])}B/s. A part with "
            f"fewer than {machine['ridge']:.1f} FLOP per byte is memory-bound: a faster processor would not speed it up "
            "(roofline model, Williams et al., 2009).",
            "note",
        ),
        Words(f"{LEGEND}. Minimum time: at the machine's peak FLOP/s and bandwidth.", "hint"),
    ]
    for name, parts in result["phases"].items():
        rows, shares = part_rows(parts), time_shares(parts)
        cells = ["share of time", *(f"{share:.1%}" for share in shares), "100%"]
        shown = [(row[0], text, *row[1:]) for row, text in zip(rows, cells, strict=True)]
        table = Table(shown, f"{name}, by part", {1: [*shares, None]}, totals=1)
        blocks += [Heading(name.capitalize()), Words(format_memory_bound(parts)), table]
    sizes = result["memory"]
    kept = [("", "size"), *((name, f"{format_number(size)}B") for name, size in sizes.items())]
    bars = {1: [size / max(sizes.values()) for size in sizes.values()]}
    blocks += [Heading("Memory"), Words(MEMORY, "hint"), Table(kept, "memory", bars)]
    compared = f"{format_layer_size(result['layer'])}. Sequential: steps that cannot run in parallel."
    kinds = [[cell.replace("^2", "²") for cell in row] for row in layer_rows(result)]
    blocks += [Heading("Layer types"), Words(compared, "hint"), Table(kinds, "layer types")]
    return [*blocks, *(Words(sentence(text), "hint") for text in remarks(result))]


def time_shares(parts: Sequence[dict[str, Any]]) -> list[float]:
    """The share of each part in the sum of their minimum times."""
    *several, _ = parts
    return [one["seconds"] / sum(other["seconds"] for other in several) for one in several]


def format_memory_bound(parts: Sequence[dict[str, Any]]) -> str:
    shares = [share for one, share in zip(parts, time_shares(parts), strict=False) if one["bound_by"] == "memory"]
    return f"{len(shares)} of {len(parts) - 1} parts are memory-bound, {sum(shares):.0%} of the time."


def part_rows(parts: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    kept = any(one["kept"] for one in parts)
    head = ("part", "parameters", *(["saved"] if kept else []), "FLOP", "bytes moved", "FLOP/byte", "minimum time", "bound by")
    return [
        head,
        *(
            (
                one["part"],
                f"{one['parameters']:,}" if one["parameters"] else "",
                *([f"{format_number(one['kept'])}B" if one["kept"] else ""] if kept else []),
                format_number(one["work"]) if one["work"] else "",
                format_number(one["traffic"]),
                f"{one['intensity']:.1f}" if one["work"] else "",
                f"{1000 * one['seconds']:.3f} ms",
                one["bound_by"],
            )
            for one in parts
        ),
    ]


def layer_rows(result: dict[str, Any]) -> list[tuple[str, ...]]:
    return [
        ("layer", "operations", "sequential", "longest path", "FLOP", "formula", "if n doubles"),
        *(
            (
                *(one[name] for name in ("kind", "formula", "steps", "path")),
                format_number(one["work"]),
                one["products"],
                f"{one['growth']:.1f} x",
            )
            for one in result["kinds"]
        ),
    ]


def remarks(result: dict[str, Any]) -> list[str]:
    """Explanations of the formulas, each once."""
    kinds: dict[str, list[str]] = {}
    for one in result["kinds"]:
        kinds.setdefault(one["remark"], []).append(one["kind"])
    return [f"{', '.join(names)}: {remark}." for remark, names in kinds.items() if remark]


def format_layer_size(layer: dict[str, Any]) -> str:
    sizes = f"d = {layer['dim']}, n = {layer['tokens']:,} tokens, r = {layer['window']}, k = {layer['kernel']}"
    return f"{sizes}; operations: order of growth; FLOP: all matrix products of one layer of this library"


def format_number(number: float) -> str:
    """12345678 -> 12.3 M."""
    for power, name in ((12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if number >= 10**power:
            return f"{number / 10**power:.1f} {name}"
    return f"{number:.0f} "
