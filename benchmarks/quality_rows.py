"""The results of benchmarks/quality.py, grouped by data and direction.

A file is named <data>-<source>-<target>-<which>.json: `which` is the seed of one of our runs, or begins with "hf" for a peer.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any, NamedTuple

Result = dict[str, Any]


class Row(NamedTuple):
    data: str
    source: str
    target: str
    seeds: list[Result]  # at least one
    peer: Result | None  # the one with the best validation BLEU

    @property
    def name(self) -> str:
        return f"{self.data}-{self.source}-{self.target}"


def quality_rows(folder: Path) -> list[Row]:
    """One row per name with at least one of our runs, sorted by name."""
    by_name: dict[str, list[Result]] = {}
    for path in sorted(folder.glob("*-*-*-*.json")):
        by_name.setdefault(path.stem.rsplit("-", 1)[0], []).append(json.loads(path.read_text()))
    rows = []
    for name, results in by_name.items():
        data, source, target = name.rsplit("-", 2)
        seeds = [result for result in results if result.get("system", "heedful") == "heedful"]
        peers = [result for result in results if result.get("system") == "hf"]
        if seeds:
            best = max(peers, key=lambda result: float(result["valid"]["bleu"]), default=None)
            rows.append(Row(data, source, target, seeds, best))
    return rows


def bleu(result: Result, case: str = "scores") -> float:
    return float(result[case]["bleu"]["value"])


def mean(results: list[Result], case: str = "scores") -> float:
    """Mean BLEU of the seeds; case: scores or lowercased."""
    return statistics.mean(bleu(result, case) for result in results)
