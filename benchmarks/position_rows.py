"""The table of positions.py from its results: the share of answers that are right, within training and beyond it."""

from __future__ import annotations

from typing import Any


def position_rows(found: dict[str, Any]) -> list[list[str]]:
    """The head, then a row for each scheme."""
    longest = found["trained_to"]
    half = longest * 3 // 2
    spans = [
        range(1, longest + 1),
        range(longest + 1, longest + 2),
        range(longest + 2, half + 1),
        range(half + 1, 2 * longest + 1),
    ]
    named = [f"{span[0]}–{span[-1]}" if len(span) > 1 else str(span[0]) for span in spans]
    head = ["position", "loss", *(f"{name}, %" for name in named), f"symbols of {named[-1]}, %", "seconds"]
    rows = []
    for name, one in found["schemes"].items():
        shares = [mean(one["exact"], span) for span in spans] + [mean(one["forced"], spans[-1])]
        rows.append([name, f"{one['loss']:.4f}", *(f"{100 * share:.1f}" for share in shares), f"{one['seconds']:.0f}"])
    return [head, *rows]


def mean(shares: dict[str, float], span: range) -> float:
    return sum(shares[str(length)] for length in span) / len(span)
