"""Write measured results into the headers of recipes.

A result belongs to a recipe if it was produced by the recipe of that name with its current settings. A recipe with only
outdated results has no measured lines; a recipe without any result is left unchanged.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path

from quality_rows import Result, Row, bleu, mean, quality_rows

from heedful.runs.recipes import MEASURED, all_recipes, settings_digest


def update_recipes(folder: Path) -> Iterator[str]:
    """Write the headers; yield messages."""
    recipes = all_recipes()
    for row in quality_rows(folder):
        path = recipes.get(row.name)
        if path is None:
            yield f"{row.name}: there are results, but no recipe with this name"
            continue
        digest = settings_digest(path)
        fitting = [result for result in row.seeds if result["recipe"] == row.name and result.get("settings", digest) == digest]
        path.write_text(with_header(path.read_text(encoding="utf-8"), measured(row, fitting)), encoding="utf-8")
        yield f"{row.name}: {len(fitting)} of {len(row.seeds)} results match the current recipe"


def measured(row: Row, seeds: list[Result]) -> dict[str, str]:
    """The header lines of these results; empty without results."""
    if not seeds:
        return {}
    many = f", mean of {len(seeds)} seeds" if len(seeds) > 1 else ", one seed"
    beside = (
        f"; HF Marian of that size {bleu(row.peer):.2f} in {row.peer['train_seconds'] / 60:.1f} minutes" if row.peer else ""
    )
    lines = {
        "result": f"{mean(seeds):.2f} BLEU, {mean(seeds, 'lowercased'):.2f} lowercased{many}{beside}",
        "machine": join_distinct(result["machine"] for result in seeds),
        "minutes": f"{statistics.mean(result['train_seconds'] for result in seeds) / 60:.1f}",
        "date": max(result["date"] for result in seeds),
        "options": join_distinct(
            " ".join(option for option in result["overrides"] if not option.startswith("seed=")) for result in seeds
        ),
        "signature": join_distinct(result["scores"]["bleu"]["signature"] for result in seeds),
    }
    return {name: lines[name] for name in MEASURED if lines[name]}


def join_distinct(texts: Iterable[str]) -> str:
    return " or ".join(sorted(set(texts)))


def with_header(text: str, lines: dict[str, str]) -> str:
    """Replace the measured lines of a recipe; they follow its purpose."""
    rows = text.split("\n")
    end = next(number for number, row in enumerate(rows) if not row.startswith("#"))
    kept = [row for row in rows[:end] if row.lstrip("# ").partition(":")[0] not in MEASURED]
    return "\n".join([kept[0], *(f"# {name}: {value}" for name, value in lines.items()), *kept[1:], *rows[end:]])
