"""The table of model families on Multi30k in docs/results.md: one row per family, both directions, from files of quality.py.

    python benchmarks/quality.py benchmarks/results/families \
        --run "bahdanau-de-en-1 multi30k-de-en-bahdanau seed=1" \
        --run "bahdanau-en-de-1 multi30k-de-en-bahdanau seed=1 'data.languages=[\\"en\\", \\"de\\"]'"

A file is named <family>-<source>-<target>-<seed>.json.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headers import is_measured, measured, with_header
from quality_rows import Row

from heedful.runs.recipes import all_recipes

DIRECTIONS = ("de-en", "en-de")
HEAD = [
    "family",
    *(f"{direction.replace('-', ' -> ')}, lower-cased (cased)" for direction in DIRECTIONS),
    "minutes",
    "share of the GPU",
    "seeds",
]

ByFamily = dict[str, dict[str, list[dict[str, Any]]]]  # family -> direction -> results, one per seed


def gather(folder: Path) -> ByFamily:
    by_family: ByFamily = {}
    for path in sorted(folder.glob("*.json")):
        family, source, target, _ = path.stem.rsplit("-", 3)
        by_family.setdefault(family, {}).setdefault(f"{source}-{target}", []).append(json.loads(path.read_text()))
    return by_family


def direction_rows(by_family: ByFamily) -> list[list[str]]:
    """Rows sorted by the mean lowercased BLEU of the family's first direction, best first."""

    def order(family: str) -> float:
        return next(
            -mean(by_family[family][direction], "lowercased") for direction in DIRECTIONS if direction in by_family[family]
        )

    return [row(family, by_family[family]) for family in sorted(by_family, key=order)]


def row(family: str, results: dict[str, list[dict[str, Any]]]) -> list[str]:
    every = [result for several in results.values() for result in several]
    minutes = statistics.mean(result["train_seconds"] for result in every) / 60
    counts = sorted({len(several) for several in results.values()})
    return [
        family,
        *(cell(results.get(direction, [])) for direction in DIRECTIONS),
        f"{minutes:.1f}",
        " or ".join(f"{share}%" for share in sorted({result["percent_of_the_chip"] for result in every})),
        " or ".join(map(str, counts)),
    ]


def cell(seeds: list[dict[str, Any]]) -> str:
    """The mean and the range of the seeds."""
    if not seeds:
        return ""
    lowered = [result["lowercased"]["bleu"]["value"] for result in seeds]
    spread = f", {min(lowered):.1f} to {max(lowered):.1f}" if len(seeds) > 1 else ""
    return f"{statistics.mean(lowered):.2f} ({mean(seeds, 'scores'):.2f}{spread})"


def mean(seeds: list[dict[str, Any]], case: str) -> float:
    return statistics.mean(float(result[case]["bleu"]["value"]) for result in seeds)


def overridden(by_family: ByFamily) -> dict[str, str]:
    """family -> overrides that change its model or training task."""
    texts = {}
    for family, directions in by_family.items():
        changes = {" ".join(changed(result["overrides"])) for seeds in directions.values() for result in seeds}
        texts[family] = " or ".join(sorted(filter(None, changes)))
    return {family: text for family, text in texts.items() if text}


def update_direction_recipes(by_family: ByFamily) -> Iterator[str]:
    """Write the headers of recipes whose current settings were measured; yield messages."""
    recipes = all_recipes()
    for family, directions in by_family.items():
        for direction, seeds in directions.items():
            name = f"multi30k-{direction}-{family}"
            path = recipes.get(name)
            if path is None:
                continue
            source, target = direction.split("-")
            current = [result for result in seeds if is_measured(result, path)]
            lines = measured(Row("multi30k", source, target, current, None), current)
            path.write_text(with_header(path.read_text(encoding="utf-8"), lines), encoding="utf-8")
            yield f"{name}: {len(current)} of {len(seeds)} results match the current recipe"


def changed(overrides: list[str]) -> list[str]:
    """Overrides that change the model, not only the duration or speed of training."""
    return [result for result in overrides if result.startswith(("model.", "task.", "tokenizer.", "training.schedule."))]
