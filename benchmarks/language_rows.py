"""The table of language models in docs/results.md and the headers of their recipes, from the files of language.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headers import changes, is_measured, with_header

from heedful.runs.recipes import MEASURED, all_recipes

HEAD = ["", "recipe", "valid", "test", "steps", "seconds", "options", "machine", "date"]
METRIC_NAMES = ("accuracy", "perplexity", "loss", "bits_per_character")  # in this order


def language_rows(folder: Path) -> list[list[str]]:
    return [row(path.stem, json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]


def row(name: str, results: dict[str, Any]) -> list[str]:
    scores = [figures(results["scores"].get(split, {})) for split in ("valid", "test")]
    steps = f"{results['steps']:,}" + (" (stopped)" if results["stopped"] else "")
    recipe = all_recipes().get(results["recipe"])
    changed = results["overrides"] if recipe is None else changes(results, recipe)
    options = f"`{' '.join(changed)}`" if changed else ""
    return [
        name,
        results["recipe"],
        *scores,
        steps,
        f"{results['train_seconds']:.0f}",
        options,
        results["machine"],
        results["date"],
    ]


def figures(of: dict[str, float]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {of[name]:.4g}" for name in METRIC_NAMES if name in of)


def update_language_recipes(folder: Path) -> Iterator[str]:
    """Write the headers of recipes whose current settings were measured; yield messages."""
    recipes = all_recipes()
    for path in sorted(folder.glob("*.json")):
        results = json.loads(path.read_text())
        recipe = recipes.get(results["recipe"])
        if recipe is None or path.stem != results["recipe"]:
            continue
        fits = is_measured(results, recipe)
        recipe.write_text(with_header(recipe.read_text(encoding="utf-8"), measured(results) if fits else {}), encoding="utf-8")
        yield f"{path.stem}: {'measured with the current settings' if fits else 'measured with other settings'}"


def measured(results: dict[str, Any]) -> dict[str, str]:
    lines = {
        "result": "; ".join(f"{split} {figures(one)}" for split, one in results["scores"].items()),
        "machine": results["machine"],
        "minutes": f"{results['train_seconds'] / 60:.1f}",
        "date": results["date"],
    }
    return {name: lines[name] for name in MEASURED if lines.get(name)}
