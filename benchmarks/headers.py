"""Write measured results into the headers of recipes.

A result belongs to a recipe if it was produced by the recipe of that name as it is (`is_measured`). A recipe with only outdated
results has no measured lines; a recipe without any result is left unchanged.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path

from quality_rows import Result, Row, bleu, mean, quality_rows

from heedful.config.given import parse_value
from heedful.config.read import flatten
from heedful.config.toml import parse_toml
from heedful.runs.auto import OFF
from heedful.runs.recipes import MEASURED, all_recipes, settings_digest

ON_A_GPU: dict[str, object] = {
    "training.precision": "bf16",
    "training.cuda_graphs": True,
    "data.pad_to_multiple_of": 16,
}  # what "auto" becomes on a GPU; a test compares this with runs/auto.py


def is_measured(result: Result, path: Path) -> bool:
    """Whether a result was measured with the recipe as it is: its settings are those of the recipe, and no override of its
    command changed them.

    When a recipe takes up options of its measurement, the digest in the result files is computed again from the new recipe;
    their overrides stay, and must be equal to the values in the recipe."""
    digest = settings_digest(path)
    return result.get("settings", digest) == digest and not changes(result, path)


def changes(result: Result, path: Path) -> list[str]:
    """The overrides of a result that changed the recipe, other than its seed.

    Results from before the value "auto" name what it becomes now. A time limit changes nothing if all steps were done, and
    training.compile changes the speed only. The run of training.init is known by its name."""
    settings = flatten(parse_toml(path.read_text(encoding="utf-8")))
    values = (ON_A_GPU if result["machine"].startswith("NVIDIA") else OFF) | settings
    all_steps = result.get("finished", result.get("steps", 0) == settings.get("training.steps"))

    def is_neutral(override: str) -> bool:
        name, _, text = override.partition("=")
        value = parse_value(text)
        if name == "training.init":
            return bool(value) and str(values.get(name, "")).endswith(str(value))
        if name == "training.minutes" and all_steps:
            return True
        return name in ("seed", "training.compile") or values.get(name) == value

    return [override for override in result["overrides"] if not is_neutral(override)]


def update_recipes(folder: Path) -> Iterator[str]:
    """Write the headers; yield messages."""
    recipes = all_recipes()
    for row in quality_rows(folder):
        path = recipes.get(row.name)
        if path is None:
            yield f"{row.name}: there are results, but no recipe with this name"
            continue
        fitting = [result for result in row.seeds if result["recipe"] == row.name and is_measured(result, path)]
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
