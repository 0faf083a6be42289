"""What docs/results.md says of language models, from the files of language.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
