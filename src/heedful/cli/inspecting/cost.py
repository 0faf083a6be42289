"""heed inspect RUN --cost: what the model costs at work, part by part, and what this machine would wait for."""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, Any

from heedful.cli.output import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from heedful.inspection.cost import CostRecord
    from heedful.inspection.hardware_limits import Limits
    from heedful.inspection.report.blocks import Block
    from heedful.predictor import Predictor

COUNTED = (
    "FLOP are those of matrix products, 2 for a multiplication and an addition; norms, sums and the update are paid for in "
    "bytes moved. Attention is one kernel that keeps its scores to itself. Between: what the model does outside of its named "
    "parts, such as masks and putting tensors together. Kept: for the backward pass"
)
MEMORY = (
    "Weights, gradients, what the optimizer keeps, and activations from the forward to the backward pass are there in "
    "training; the cache, when all is said, in translating. Bars: beside the largest."
)
LONG, WINDOW = 1024, 64  # tokens for which kinds of layers are compared, and how many of them restricted attention sees


def found(worker: Predictor, *, rows: int = 32, tokens: int = 32) -> dict[str, Any]:
    """rows: sentences at a time; tokens: of each, on either side."""
    from heedful.errors import ConfigError
    from heedful.inspection.cost_report import PHASES, Size, layer_costs, memory, parameters_by_part
    from heedful.inspection.hardware_limits import measure
    from heedful.nn.sequence_layers import LayerSize

    if worker.run.task.name not in ("translation", "language"):
        given = f"given a run of task {worker.run.task.name!r}, whose model says no words"
        raise ConfigError(f"{given}; the cost is counted of runs of: translation, language")
    model: Any = worker.model
    size, limits = Size(rows, tokens, tokens), measure(worker.system.device)
    width = getattr(worker.run.model, "dim", 512)
    layer = LayerSize(dim=width, heads=gcd(8, width), window=WINDOW, causal=bool(width % 2))  # an odd dim cannot look both ways
    bills = {name: scene(model, size) for name, scene in PHASES.items()}
    return {
        "rows": rows,
        "tokens": tokens,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "machine": {"operations": limits.operations, "bytes": limits.bytes, "ridge": limits.ridge},
        "scenes": {name: parts_of(bill, limits, parameters_by_part(model, bill.parts)) for name, bill in bills.items()},
        "memory": memory(model, size)._asdict(),
        "layer": {"dim": width, "tokens": LONG, "window": layer.window, "kernel": layer.kernel},
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
            for kind in layer_costs(layer, LONG)
        ],
    }


def parts_of(bill: CostRecord, limits: Limits, owned: dict[str, int]) -> list[dict[str, Any]]:
    """Every part that does something, the whole last; owned: parameters of each part."""
    from heedful.inspection.cost import total

    whole = total(list(bill.parts.values()))
    return [
        {
            "part": name,
            "parameters": sum(owned.get(part, 0) for part in (bill.parts if name == "all" else [name])),
            "kept": sum(size for _, size in bill.kept.values()) if name == "all" else bill.kept_by(name),
            "work": cost.work,
            "traffic": cost.traffic,
            "intensity": cost.intensity,
            "seconds": max(cost.work / limits.operations, cost.traffic / limits.bytes),
            "waits_for": "memory" if cost.intensity < limits.ridge else "products",
        }
        for name, cost in {**bill.parts, "all": whole}.items()
        if cost.traffic
    ]


def as_text(found: dict[str, Any]) -> str:
    machine = found["machine"]
    text = [
        f"{found['parameters']:,} parameters; {found['rows']} sentences of {found['tokens']} tokens",
        f"this machine: {short(machine['operations'])}FLOP/s, {short(machine['bytes'])}B/s; "
        f"below {machine['ridge']:.1f} FLOP a byte it waits for its memory",
        COUNTED,
    ]
    text += [f"\n{name}\n{table(rows_of(parts))}" for name, parts in found["scenes"].items()]
    text.append("\nmemory\n" + table([(name, f"{short(size)}B") for name, size in found["memory"].items()]))
    text.append(f"\nother layers, {size_of(found['layer'])}\n{table(kinds_of(found))}")
    text += remarks_of(found)
    return "\n".join(text)


def as_blocks(found: dict[str, Any]) -> list[Block]:
    from heedful.inspection.report.blocks import Heading, Table, Words, sentence

    machine = found["machine"]
    blocks: list[Block] = [
        Words(f"{found['parameters']:,} parameters, counted at work on {found['rows']} sentences of {found['tokens']} tokens."),
        Words(
            f"This machine does {short(machine['operations'])}FLOP in a second and moves {short(machine['bytes'])}B. A part "
            f"that does fewer than {machine['ridge']:.1f} FLOP for each byte waits for the memory, and a faster processor "
            "would not help it (the roofline, Williams et al., 2009).",
            "note",
        ),
        Words(f"{COUNTED}. At best: the time that it takes at the machine's limits.", "hint"),
    ]
    for name, parts in found["scenes"].items():
        rows, shares = rows_of(parts), shares_of(parts)
        told = ["of the time", *(f"{share:.1%}" for share in shares), "100%"]
        shown = [(row[0], text, *row[1:]) for row, text in zip(rows, told, strict=True)]
        table = Table(shown, f"{name}, part by part", {1: [*shares, None]}, totals=1)
        blocks += [Heading(name.capitalize()), Words(waiting(parts)), table]
    sizes = found["memory"]
    kept = [("", "size"), *((name, f"{short(size)}B") for name, size in sizes.items())]
    bars = {1: [size / max(sizes.values()) for size in sizes.values()]}
    blocks += [Heading("Memory"), Words(MEMORY, "hint"), Table(kept, "memory", bars)]
    compared = f"{size_of(found['layer'])}. In sequence: steps that must follow one another."
    kinds = [[cell.replace("^2", "²") for cell in row] for row in kinds_of(found)]
    blocks += [Heading("Other kinds of layers"), Words(compared, "hint"), Table(kinds, "other kinds of layers")]
    return [*blocks, *(Words(sentence(text), "hint") for text in remarks_of(found))]


def shares_of(parts: Sequence[dict[str, Any]]) -> list[float]:
    """Of the time that all parts take one after the other."""
    *several, _ = parts
    return [one["seconds"] / sum(other["seconds"] for other in several) for one in several]


def waiting(parts: Sequence[dict[str, Any]]) -> str:
    """The memory wall: who stands before it."""
    waits = [share for one, share in zip(parts, shares_of(parts), strict=False) if one["waits_for"] == "memory"]
    return f"{len(waits)} of {len(parts) - 1} parts wait for memory, which is {sum(waits):.0%} of the time."


def rows_of(parts: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    kept = any(one["kept"] for one in parts)
    head = ("part", "parameters", *(["kept"] if kept else []), "FLOP", "bytes moved", "FLOP/byte", "at best", "waits for")
    return [
        head,
        *(
            (
                one["part"],
                f"{one['parameters']:,}" if one["parameters"] else "",
                *([f"{short(one['kept'])}B" if one["kept"] else ""] if kept else []),
                short(one["work"]) if one["work"] else "",
                short(one["traffic"]),
                f"{one['intensity']:.1f}" if one["work"] else "",
                f"{1000 * one['seconds']:.3f} ms",
                one["waits_for"],
            )
            for one in parts
        ),
    ]


def kinds_of(found: dict[str, Any]) -> list[tuple[str, ...]]:
    return [
        ("a layer", "operations", "in sequence", "longest path", "FLOP", "which is", "for twice as many"),
        *(
            (
                *(one[name] for name in ("kind", "formula", "steps", "path")),
                short(one["work"]),
                one["products"],
                f"{one['growth']:.1f} x",
            )
            for one in found["kinds"]
        ),
    ]


def remarks_of(found: dict[str, Any]) -> list[str]:
    """What explains the formulas, each once."""
    kinds: dict[str, list[str]] = {}
    for one in found["kinds"]:
        kinds.setdefault(one["remark"], []).append(one["kind"])
    return [f"{', '.join(names)}: {remark}." for remark, names in kinds.items() if remark]


def size_of(layer: dict[str, Any]) -> str:
    sizes = f"d = {layer['dim']}, n = {layer['tokens']:,} tokens, r = {layer['window']}, k = {layer['kernel']}"
    return f"{sizes}; operations: how they grow; FLOP: of all matrix products of one layer of this library"


def short(number: float) -> str:
    """12345678 -> 12.3 M."""
    for power, name in ((12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if number >= 10**power:
            return f"{number / 10**power:.1f} {name}"
    return f"{number:.0f} "
