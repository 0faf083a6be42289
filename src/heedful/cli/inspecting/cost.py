"""heed inspect RUN --cost: what the model costs at work, part by part, and what this machine would wait for."""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, Any

from heedful.cli.output import table

if TYPE_CHECKING:
    from heedful.inspection.cost import Bill
    from heedful.inspection.limits import Limits
    from heedful.worker import Worker

LONG, WINDOW = 1024, 64  # tokens for which kinds of layers are compared, and how many of them restricted attention sees


def found(worker: Worker, *, rows: int = 32, tokens: int = 32) -> dict[str, Any]:
    """rows: sentences at a time; tokens: of each, on either side."""
    from heedful.errors import ConfigError
    from heedful.inspection.limits import measure
    from heedful.inspection.scenes import SCENES, Size, kinds, memory, parameters_by_part
    from heedful.nn.sequence_layers import LayerSize

    if worker.run.task.name not in ("translation", "language"):
        given = f"given a run of task {worker.run.task.name!r}, whose model says no words"
        raise ConfigError(f"{given}; the cost is counted of runs of: translation, language")
    model: Any = worker.model
    size, limits = Size(rows, tokens, tokens), measure(worker.system.device)
    width = getattr(worker.run.model, "dim", 512)
    layer = LayerSize(dim=width, heads=gcd(8, width), window=WINDOW, causal=bool(width % 2))  # an odd dim cannot look both ways
    bills = {name: scene(model, size) for name, scene in SCENES.items()}
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
                "work": kind.once.work,
                "growth": kind.twice.work / kind.once.work,
            }
            for kind in kinds(layer, LONG)
        ],
    }


def parts_of(bill: Bill, limits: Limits, owned: dict[str, int]) -> list[dict[str, Any]]:
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
        "FLOP are those of matrix products; norms, sums and the update are paid for in bytes moved. Attention is one kernel "
        "that keeps its scores to itself. Kept: for the backward pass",
    ]
    for name, parts in found["scenes"].items():
        kept = any(one["kept"] for one in parts)
        rows = [("part", "parameters", *(["kept"] if kept else []), "FLOP", "bytes moved", "FLOP/byte", "at best", "waits for")]
        rows += [
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
        ]
        text.append(f"\n{name}\n{table(rows)}")
    text.append("\nmemory\n" + table([(name, f"{short(size)}B") for name, size in found["memory"].items()]))
    layer = found["layer"]
    layers = [("a layer", "operations", "in sequence", "longest path", "FLOP", "for twice as many")]
    layers += [
        (one["kind"], one["formula"], one["steps"], one["path"], short(one["work"]), f"{one['growth']:.1f} x")
        for one in found["kinds"]
    ]
    text.append(
        f"\nother layers, d = {layer['dim']}, n = {layer['tokens']:,} tokens, r = {layer['window']}, k = {layer['kernel']}; "
        f"projections included\n{table(layers)}"
    )
    return "\n".join(text)


def short(number: float) -> str:
    """12345678 -> 12.3 M."""
    for power, name in ((12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if number >= 10**power:
            return f"{number / 10**power:.1f} {name}"
    return f"{number:.0f} "
