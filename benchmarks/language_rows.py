"""The table of language models in docs/results.md and the headers of their recipes, from the files of language.py."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from headers import changes, is_measured, with_header

from heedful.runs.recipes import MEASURED, all_recipes

HEAD = ["", "recipe", "valid", "test", "steps", "seconds", "options", "machine", "date"]
DATA = {"sst2": "SST-2", "imdb": "IMDb", "ewt": "UD English EWT"}  # recipes of labeled data begin with these: label_rows.py
METRIC_NAMES = ("accuracy", "perplexity", "loss", "bits_per_character")  # in this order


def language_rows(folder: Path) -> list[list[str]]:
    """One row for each result; those of labeled data have their own table."""
    found = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    return [row(name, results) for name, results in found.items() if not is_labeled(results)]


def is_labeled(results: dict[str, Any]) -> bool:
    return data_of(results) in DATA


def data_of(results: dict[str, Any]) -> str:
    return str(results["recipe"]).partition("-")[0]


def row(name: str, results: dict[str, Any]) -> list[str]:
    scores = [figures(results["scores"].get(split, {})) for split in ("valid", "test")]
    steps = f"{results['steps']:,}" + (" (stopped)" if results["stopped"] else "")
    return [
        name,
        results["recipe"],
        *scores,
        steps,
        f"{results['train_seconds']:.0f}",
        options_of(results),
        results["machine"],
        results["date"],
    ]


def options_of(results: dict[str, Any]) -> str:
    """The overrides that changed the recipe."""
    recipe = all_recipes().get(results["recipe"])
    changed = results["overrides"] if recipe is None else changes(results, recipe)
    return f"`{' '.join(changed)}`" if changed else ""


def figures(of: dict[str, float]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {of[name]:.4g}" for name in METRIC_NAMES if name in of)


def update_language_recipes(folder: Path) -> Iterator[str]:
    """Write the headers of recipes whose current settings were measured, with one seed or several; yield messages."""
    seeds: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob("*.json")):
        results = json.loads(path.read_text())
        if re.fullmatch(rf"{re.escape(results['recipe'])}(-[0-9]+)?", path.stem):  # other names have other options
            seeds.setdefault(results["recipe"], []).append(results)
    recipes = all_recipes()
    for name, several in seeds.items():
        if name not in recipes:
            continue
        recipe = recipes[name]
        fitting = [results for results in several if is_measured(results, recipe)]
        recipe.write_text(with_header(recipe.read_text(encoding="utf-8"), measured(fitting)), encoding="utf-8")
        yield f"{name}: {len(fitting)} of {len(several)} results match the current recipe"


def measured(seeds: Sequence[dict[str, Any]]) -> dict[str, str]:
    """The header lines of these results, with the mean of their scores; empty without results."""
    if not seeds:
        return {}
    means = {
        split: {name: mean(one["scores"][split][name] for one in seeds) for name in METRIC_NAMES if name in scores}
        for split, scores in seeds[0]["scores"].items()
    }
    many = f" (mean of {len(seeds)} seeds)" if len(seeds) > 1 else ""
    lines = {
        "result": "; ".join(f"{split} {figures(one)}" for split, one in means.items()) + many,
        "machine": " or ".join(sorted({one["machine"] for one in seeds})),
        "minutes": f"{mean(one['train_seconds'] for one in seeds) / 60:.1f}",
        "date": max(one["date"] for one in seeds),
    }
    return {name: lines[name] for name in MEASURED if lines.get(name)}
