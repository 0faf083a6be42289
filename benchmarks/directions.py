"""What docs/results.md says of the families on Multi30k: one row a family, both directions, from files of quality.py.

    python benchmarks/quality.py benchmarks/results/families --also "training.minutes=2 …" \
        --run "bahdanau-de-en-1 multi30k-de-en-bahdanau seed=1" \
        --run "bahdanau-en-de-1 multi30k-de-en-bahdanau seed=1 'data.languages=[\\"en\\", \\"de\\"]'"

A file is called <family>-<source>-<target>-<seed>.json.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headers import measured, with_header
from quality_rows import Row

from heedful.recipe_files import all_recipes, settings_digest

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


def overridden(found: Found) -> dict[str, str]:
    """family -> what its row changes in its recipe, where it changes what the model is or learns."""
    told = {}
    for family, directions in found.items():
        changes = {" ".join(changed(one["overrides"])) for seeds in directions.values() for one in seeds}
        told[family] = " or ".join(sorted(filter(None, changes)))
    return {family: text for family, text in told.items() if text}


def update_direction_recipes(found: Found) -> Iterator[str]:
    """Write the headers of recipes that were measured as they stand but for how long, and say what was done."""
    recipes = all_recipes()
    for family, directions in found.items():
        for direction, seeds in directions.items():
            name = f"multi30k-{direction}-{family}"
            path = recipes.get(name)
            if path is None:
                continue
            source, target = direction.split("-")
            as_it_stands = [one for one in seeds if one["settings"] == settings_digest(path) and not changed(one["overrides"])]
            lines = measured(Row("multi30k", source, target, as_it_stands, None), as_it_stands)
            path.write_text(with_header(path.read_text(encoding="utf-8"), lines), encoding="utf-8")
            yield f"{name}: {len(as_it_stands)} of {len(seeds)} results are of the recipe as it stands"


def changed(overrides: list[str]) -> list[str]:
    """What makes it another model, and not just a longer or a quicker training."""
    return [one for one in overrides if one.startswith(("model.", "task.", "tokenizer.", "training.schedule."))]
