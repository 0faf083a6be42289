"""The sections of docs/results.md. Each is a function that reads files of benchmarks/results and returns Markdown; empty
without results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"


def measured(name: str) -> bool:
    return (RESULTS / name).exists()


def read(name: str) -> dict[str, Any]:
    results: dict[str, Any] = json.loads((RESULTS / name).read_text())
    return results


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
