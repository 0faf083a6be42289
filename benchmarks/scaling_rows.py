"""The table of training steps against sentence length in docs/results.md, from the results of scaling.py."""

from __future__ import annotations

from typing import Any


def lengths_text(results: dict[str, Any]) -> str:
    return (
        f"Milliseconds of a training step of {results['tokens']:,} tokens per side, dim {results['dim']}, vocabulary "
        f"{results['vocab']:,}: twice the length, half the rows. Medians; the families alternate.\n"
        "\n`python benchmarks/scaling.py --parts families`"
    )


def lengths_table(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The header, and one row per family: the time at each length, and the ratio of the last to the first."""
    head = ["tokens per sentence", *(str(length) for length in results["lengths"]), "last / first"]
    return head, [
        row(name, kind["points"], len(results["lengths"])) for name, kind in results["kinds"].items() if kind["points"]
    ]


def row(name: str, points: list[dict[str, float]], lengths: int) -> list[str]:
    times = [f"{point['seconds'] * 1e3:,.0f}" for point in points]
    growth = points[-1]["seconds"] / points[0]["seconds"]
    return [name, *times, *[""] * (lengths - len(times)), f"{growth:.2f} x"]
