"""What docs/results.md says of the families on Multi30k: one row a family, both directions, from files of quality.py.

    python benchmarks/quality.py benchmarks/results/families --also "training.minutes=2 …" \
        --run "bahdanau-de-en-1 multi30k-de-en-bahdanau seed=1" \
        --run "bahdanau-en-de-1 multi30k-de-en-bahdanau seed=1 'data.languages=[\\"en\\", \\"de\\"]'"

A file is called <family>-<source>-<target>-<seed>.json.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

DIRECTIONS = ("de-en", "en-de")
HEAD = [
    "family",
    *(f"{direction.replace('-', ' -> ')}, lower-cased (cased)" for direction in DIRECTIONS),
    "minutes",
    "of the chip",
    "seeds",
]

Found = dict[str, dict[str, list[dict[str, Any]]]]  # family -> direction -> results, one a seed


def gather(folder: Path) -> Found:
    found: Found = {}
    for path in sorted(folder.glob("*.json")):
        family, source, target, _ = path.stem.rsplit("-", 3)
        found.setdefault(family, {}).setdefault(f"{source}-{target}", []).append(json.loads(path.read_text()))
    return found


def direction_rows(found: Found) -> list[list[str]]:
    """The best family first, by the mean of the seeds, lower-cased, of the first direction that it has."""

    def order(family: str) -> float:
        return next(-mean(found[family][direction], "lowercased") for direction in DIRECTIONS if direction in found[family])

    return [row(family, found[family]) for family in sorted(found, key=order)]


def row(family: str, results: dict[str, list[dict[str, Any]]]) -> list[str]:
    every = [one for several in results.values() for one in several]
    minutes = statistics.mean(one["train_seconds"] for one in every) / 60
    counts = sorted({len(several) for several in results.values()})
    return [
        family,
        *(cell(results.get(direction, [])) for direction in DIRECTIONS),
        f"{minutes:.1f}",
        " or ".join(f"{share}%" for share in sorted({one["percent_of_the_chip"] for one in every})),
        " or ".join(map(str, counts)),
    ]


def cell(seeds: list[dict[str, Any]]) -> str:
    """The mean, and from where to where single seeds go."""
    if not seeds:
        return ""
    lowered = [one["lowercased"]["bleu"]["value"] for one in seeds]
    spread = f", {min(lowered):.1f} to {max(lowered):.1f}" if len(seeds) > 1 else ""
    return f"{statistics.mean(lowered):.2f} ({mean(seeds, 'scores'):.2f}{spread})"


def mean(seeds: list[dict[str, Any]], case: str) -> float:
    return statistics.mean(float(one[case]["bleu"]["value"]) for one in seeds)
