"""heed inspect RUN --cost: what the model costs at work, part by part, and what this machine would wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heedful.cli.output import table

if TYPE_CHECKING:
    from heedful.inspection.cost import Bill
    from heedful.inspection.limits import Limits
    from heedful.worker import Worker


def found(worker: Worker, *, rows: int = 32, tokens: int = 32) -> dict[str, Any]:
    """rows: sentences at a time; tokens: of each, on either side."""
    from heedful.errors import ConfigError
    from heedful.inspection.limits import measure
    from heedful.inspection.scenes import SCENES, Size, kinds, memory

    if worker.run.task.name not in ("translation", "language"):
        given = f"given a run of task {worker.run.task.name!r}, whose model says no words"
        raise ConfigError(f"{given}; the cost is counted of runs of: translation, language")
    model: Any = worker.model
    size, limits = Size(rows, tokens, tokens), measure(worker.system.device)
    width = getattr(worker.run.model, "dim", 512)
    heads = getattr(worker.run.model, "heads", 8)
    return {
        "rows": rows,
        "tokens": tokens,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "machine": {"operations": limits.operations, "bytes": limits.bytes, "ridge": limits.ridge},
        "scenes": {name: parts_of(scene(model, size), limits) for name, scene in SCENES.items()},
        "memory": memory(model, size)._asdict(),
        "dim": width,
        "kinds": [
            {"kind": kind.name, "formula": kind.formula, "work": kind.once.work, "growth": kind.twice.work / kind.once.work}
            for kind in kinds(width, heads if isinstance(heads, int) else heads[0], 4 * tokens)
        ],
    }


def parts_of(bill: Bill, limits: Limits) -> list[dict[str, Any]]:
    """Every part that does something, the whole last."""
    from heedful.inspection.cost import total

    whole = total(list(bill.parts.values()))
    return [
        {
            "part": name,
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
        f"below {machine['ridge']:.0f} FLOP a byte it waits for its memory",
    ]
    for name, parts in found["scenes"].items():
        rows = [("part", "FLOP", "bytes moved", "FLOP/byte", "at best", "waits for")]
        rows += [
            (
                one["part"],
                short(one["work"]),
                short(one["traffic"]),
                f"{one['intensity']:.1f}",
                f"{1000 * one['seconds']:.3f} ms",
                one["waits_for"],
            )
            for one in parts
        ]
        text.append(f"\n{name}\n{table(rows)}")
    text.append("\nmemory\n" + table([(name, f"{short(size)}B") for name, size in found["memory"].items()]))
    layers = [("a layer", "operations", f"FLOP for {4 * found['tokens']} tokens", "twice as many tokens")]
    layers += [(one["kind"], one["formula"], short(one["work"]), f"{one['growth']:.1f} x") for one in found["kinds"]]
    text.append(f"\nother layers of dim {found['dim']}\n{table(layers)}")
    return "\n".join(text)


def short(number: float) -> str:
    """12345678 -> 12.3 M."""
    for power, name in ((12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if number >= 10**power:
            return f"{number / 10**power:.1f} {name}"
    return f"{number:.0f} "
