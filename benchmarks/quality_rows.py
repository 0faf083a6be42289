"""The results of benchmarks/quality.py, gathered by what was measured.

A file is called <data>-<source>-<target>-<which>.json: `which` is the seed of one of our runs, or begins with "hf" for a peer.
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
    peer: Result | None  # of several the one with the best validation BLEU

    @property
    def name(self) -> str:
        return f"{self.data}-{self.source}-{self.target}"


def quality_rows(folder: Path) -> list[Row]:
    """One for each name of which there is a run of ours, by name."""
    found: dict[str, list[Result]] = {}
    for path in sorted(folder.glob("*-*-*-*.json")):
        found.setdefault(path.stem.rsplit("-", 1)[0], []).append(json.loads(path.read_text()))
    rows = []
    for name, results in found.items():
        data, source, target = name.rsplit("-", 2)
        seeds = [one for one in results if one.get("system", "heedful") == "heedful"]
        peers = [one for one in results if one.get("system") == "hf"]
        if seeds:
            best = max(peers, key=lambda one: float(one["valid"]["bleu"]), default=None)
            rows.append(Row(data, source, target, seeds, best))
    return rows


def bleu(result: Result, case: str = "scores") -> float:
    return float(result[case]["bleu"]["value"])


def mean(results: list[Result], case: str = "scores") -> float:
    """BLEU of the seeds; case: scores or lowercased."""
    return statistics.mean(bleu(one, case) for one in results)
