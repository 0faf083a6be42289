"""What docs/results.md and the headers of recipes say of language models, from the files of language.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headers import with_header

from heedful.recipe_files import MEASURED, all_recipes, settings_digest

HEAD = ["", "recipe", "valid", "test", "steps", "seconds", "options", "machine", "date"]
TOLD = ("accuracy", "perplexity", "loss", "bits_per_character")  # which figures, in this order


def language_rows(folder: Path) -> list[list[str]]:
    return [row(path.stem, json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]


def row(name: str, found: dict[str, Any]) -> list[str]:
    scores = [figures(found["scores"].get(split, {})) for split in ("valid", "test")]
    steps = f"{found['steps']:,}" + (" (stopped)" if found["stopped"] else "")
    options = f"`{' '.join(found['overrides'])}`" if found["overrides"] else ""
    return [name, found["recipe"], *scores, steps, f"{found['train_seconds']:.0f}", options, found["machine"], found["date"]]


def figures(of: dict[str, float]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {of[name]:.4g}" for name in TOLD if name in of)


def update_language_recipes(folder: Path) -> Iterator[str]:
    """Write the headers of recipes that were measured as they stand, from the files of their names; say what was done."""
    recipes = all_recipes()
    for path in sorted(folder.glob("*.json")):
        found = json.loads(path.read_text())
        recipe = recipes.get(found["recipe"])
        if recipe is None or path.stem != found["recipe"]:
            continue
        fits = found["settings"] == settings_digest(recipe)
        recipe.write_text(with_header(recipe.read_text(encoding="utf-8"), measured(found) if fits else {}), encoding="utf-8")
        yield f"{path.stem}: {'measured as it stands' if fits else 'it was measured with other settings'}"


def measured(found: dict[str, Any]) -> dict[str, str]:
    lines = {
        "result": "; ".join(f"{split} {figures(one)}" for split, one in found["scores"].items()),
        "machine": found["machine"],
        "minutes": f"{found['train_seconds'] / 60:.1f}",
        "date": found["date"],
        "options": " ".join(found["overrides"]),
    }
    return {name: lines[name] for name in MEASURED if lines.get(name)}
