"""The rows of the table that benchmarks/alignment.py gives: every layer by the usual rule, then what validation chose."""

from __future__ import annotations

from typing import Any

ALIGNMENT_HEAD = ["system", "heads", "as it is said", "once it is fed", "thresholds chosen", "all chosen", "95% interval"]


def alignment_rows(found: dict[str, Any]) -> list[list[str]]:
    """Error rates on the test sentences."""
    rows = []
    for row in found["rows"]:
        best, interval = f"{row['aer']['value']:.1%}", f"{row['aer']['low']:.1%} to {row['aer']['high']:.1%}"
        for one in row.get("layers", []):
            rates = [f"{one[kind]:.1%}" for kind in ("said", "fed", "chosen")]
            rows.append([f"{row['system']}, layer {one['layer']}", f"all {one['heads']}", *rates, "", ""])
        heads = " ".join(row["aligner"]["heads"]) if "aligner" in row else row["rule"]
        rows.append([row["system"], heads, "", "", "", best, interval])
    return rows
