"""The measured lines in the headers of recipes, written from results.

A result belongs to a recipe when it was made by the recipe of that name and the recipe sets the same things still. A recipe
without such results has no measured lines; one of which nothing was ever measured here is left as it is.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path

from quality_rows import Result, Row, bleu, mean, quality_rows

from heedful.recipe_files import MEASURED, all_recipes, settings_digest


def update_recipes(folder: Path) -> Iterator[str]:
    """Write the headers, and say what was done."""
    recipes = all_recipes()
    for row in quality_rows(folder):
        path = recipes.get(row.name)
        if path is None:
            yield f"{row.name}: there are results, but no recipe of that name"
            continue
        digest = settings_digest(path)
        fitting = [one for one in row.seeds if one["recipe"] == row.name and one.get("settings", digest) == digest]
        path.write_text(with_header(path.read_text(encoding="utf-8"), measured(row, fitting)), encoding="utf-8")
        yield f"{row.name}: {len(fitting)} of {len(row.seeds)} results are of the recipe as it stands"


def measured(row: Row, seeds: list[Result]) -> dict[str, str]:
    """The lines that these results make; none without results."""
    if not seeds:
        return {}
    many = f", mean of {len(seeds)} seeds" if len(seeds) > 1 else ", one seed"
    beside = (
        f"; HF Marian of that size {bleu(row.peer):.2f} in {row.peer['train_seconds'] / 60:.1f} minutes" if row.peer else ""
    )
    lines = {
        "result": f"{mean(seeds):.2f} BLEU, {mean(seeds, 'lowercased'):.2f} lower-cased{many}{beside}",
        "machine": among(one["machine"] for one in seeds),
        "minutes": f"{statistics.mean(one['train_seconds'] for one in seeds) / 60:.1f}",
        "date": max(one["date"] for one in seeds),
        "options": among(" ".join(option for option in one["overrides"] if not option.startswith("seed=")) for one in seeds),
        "signature": among(one["scores"]["bleu"]["signature"] for one in seeds),
    }
    return {name: lines[name] for name in MEASURED if lines[name]}


def among(texts: Iterable[str]) -> str:
    return " or ".join(sorted(set(texts)))


def with_header(text: str, lines: dict[str, str]) -> str:
    """The recipe with these measured lines, and no others, after its purpose."""
    rows = text.split("\n")
    end = next(number for number, row in enumerate(rows) if not row.startswith("#"))
    kept = [row for row in rows[:end] if row.lstrip("# ").partition(":")[0] not in MEASURED]
    return "\n".join([kept[0], *(f"# {name}: {value}" for name, value in lines.items()), *kept[1:], *rows[end:]])
