"""The table of positions.py: accuracy within and beyond the training lengths."""

from __future__ import annotations

from typing import Any


def position_rows(results: dict[str, Any]) -> list[list[str]]:
    """The header, then one row per positional encoding."""
    longest = results["trained_to"]
    half = longest * 3 // 2
    spans = [
        range(1, longest + 1),
        range(longest + 1, longest + 2),
        range(longest + 2, half + 1),
        range(half + 1, 2 * longest + 1),
    ]
    names = [f"{span[0]}–{span[-1]}" if len(span) > 1 else str(span[0]) for span in spans]
    head = ["position", "loss", *(f"{name}, %" for name in names), f"symbols of {names[-1]}, %", "seconds"]
    rows = []
    for name, one in results["schemes"].items():
        shares = [mean(one["exact"], span) for span in spans] + [mean(one["forced"], spans[-1])]
        rows.append([name, f"{one['loss']:.4f}", *(f"{100 * share:.1f}" for share in shares), f"{one['seconds']:.0f}"])
    return [head, *rows]


def mean(shares: dict[str, float], span: range) -> float:
    return sum(shares[str(length)] for length in span) / len(span)
