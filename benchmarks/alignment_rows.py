"""The table of benchmarks/alignment.py: every layer with one link per target word, then the selected aligner."""

from __future__ import annotations

from typing import Any

ALIGNMENT_HEAD = [
    "system",
    "heads",
    "predicting step",
    "consuming step",
    "thresholds selected",
    "all selected",
    "95% interval",
]


def alignment_rows(results: dict[str, Any]) -> list[list[str]]:
    """AER on the test sentences."""
    rows = []
    for row in results["rows"]:
        best, interval = f"{row['aer']['value']:.1%}", f"{row['aer']['low']:.1%} to {row['aer']['high']:.1%}"
        for one in row.get("layers", []):
            rates = [f"{one[kind]:.1%}" for kind in ("said", "fed", "chosen")]
            rows.append([f"{row['system']}, layer {one['layer']}", f"all {one['heads']}", *rates, "", ""])
        heads = " ".join(row["aligner"]["heads"]) if "aligner" in row else row["rule"]
        rows.append([row["system"], heads, "", "", "", best, interval])
    return rows
