"""What scaling.py measured of whole models against the length of sentences, as a table of docs/results.md."""

from __future__ import annotations

from typing import Any


def lengths_text(found: dict[str, Any]) -> str:
    return (
        f"Milliseconds of a training step of {found['tokens']:,} tokens a side, dim {found['dim']}, vocabulary "
        f"{found['vocab']:,}: twice the length is half the rows. Medians; the families took turns.\n"
        "\n`python benchmarks/scaling.py --parts families`"
    )


def lengths_table(found: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The head, and a row for each family: the time at each length, and the last against the first."""
    head = ["tokens of a sentence", *(str(length) for length in found["lengths"]), "last / first"]
    return head, [row(name, kind["points"], len(found["lengths"])) for name, kind in found["kinds"].items() if kind["points"]]


def row(name: str, points: list[dict[str, float]], lengths: int) -> list[str]:
    times = [f"{point['seconds'] * 1e3:,.0f}" for point in points]
    growth = points[-1]["seconds"] / points[0]["seconds"]
    return [name, *times, *[""] * (lengths - len(times)), f"{growth:.2f} x"]
