"""What docs/results.md says of pruning, from the JSON of pruning.py."""

from __future__ import annotations

import statistics
import tomllib
from collections.abc import Iterator
from typing import Any

from headers import with_header
from pruning_picture import heads_of

from heedful.recipe_files import all_recipes, settings_digest

SPLITS = ("valid", "test")
AGAIN = ("encoder", "all")  # gates that were tried on models of several seeds

HEAD = ["", "penalty", "encoder", "decoder", "cross", "valid BLEU", "test BLEU", "parameters", "seconds of training"]


def bleu_of(one: dict[str, Any], split: str) -> str:
    return f"{one['scores'][split]['bleu']['value']:.2f}" if split in one["scores"] else ""


def counts(heads: dict[str, Any]) -> list[str]:
    return [str(heads_of(heads, kind)) for kind in ("encoder", "decoder", "cross")]


def pruning_rows(found: dict[str, Any]) -> list[list[str]]:
    """The whole model, then what gates left of it; heads kept by kind."""
    whole = found["whole"]
    figures = [bleu_of(whole, "valid"), bleu_of(whole, "test"), f"{whole['parameters']:,}", ""]
    rows = [["whole", "", *counts(whole["heads"]), *figures]]
    for one in found["points"]:
        if one["method"] == "gates":
            figures = [bleu_of(one, "valid"), bleu_of(one, "test"), f"{one['parameters']:,}", f"{one['train_seconds']:.0f}"]
            rows.append([f"gates on {one['kind']}", f"{one['amount']:g}", *counts(one["heads"]), *figures])
    return rows


SEEDS_HEAD = ["model", "gates on", "encoder", "decoder", "cross", "valid BLEU", "change", "test BLEU", "change"]


def seed_rows(models: dict[str, dict[str, Any]], penalty: float) -> list[list[str]]:
    """What gates of one penalty left of several models, each trained from a seed of its own, and what that cost."""
    rows = []
    for name, found in models.items():
        for one in found["points"]:
            if one["method"] == "gates" and one["amount"] == penalty and one["kind"] in AGAIN:
                rows.append([name, one["kind"], *counts(one["heads"]), *costs(one, found["whole"])])
    return rows


def costs(one: dict[str, Any], whole: dict[str, Any]) -> list[str]:
    return [part for split in SPLITS for part in (bleu_of(one, split), f"{change(one, whole, split):+.2f}")]


def seed_text(models: dict[str, dict[str, Any]], penalty: float) -> str:
    """The mean of what was lost, by what the gates were on."""
    said = []
    for kind in AGAIN:
        lost = [
            change(one, found["whole"], "test")
            for found in models.values()
            for one in found["points"]
            if (one["method"], one["kind"], one["amount"]) == ("gates", kind, penalty)
        ]
        said.append(f"{statistics.mean(lost):+.2f} with gates on {kind}")
    return (
        f"{len(models)} models from seeds of their own, each pruned with the same penalty of {penalty:g}, fixed before any "
        f"of them was: BLEU on test changes by {' and '.join(said)}, on the mean."
    )


def update_pruning_recipe(models: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Write the header of the recipe that these models were pruned by, as far as it stands as it did; say what was done."""
    first = next(iter(models.values()))
    path = all_recipes()[first["recipe"]]
    gates = tomllib.loads(path.read_text(encoding="utf-8"))["training"]["gates"]
    asked = ("gates", *gates["kinds"], gates["penalty"])
    fitting = [one for one in models.values() if one.get("settings") == settings_digest(path)]
    found = [
        (one["whole"], point)
        for one in fitting
        for point in one["points"]
        if (point["method"], point["kind"], point["amount"]) == asked
    ]
    path.write_text(with_header(path.read_text(encoding="utf-8"), header(found, fitting)), encoding="utf-8")
    yield f"{first['recipe']}: {len(found)} of {len(models)} results are of the recipe as it stands"


def header(found: list[tuple[dict[str, Any], dict[str, Any]]], models: list[dict[str, Any]]) -> dict[str, str]:
    if not found:
        return {}
    before, after = (
        statistics.mean(one["scores"]["test"]["bleu"]["value"] for one in some) for some in zip(*found, strict=True)
    )
    (kind,) = {point["kind"] for _, point in found}
    left = sorted({heads_of(point["heads"], kind) for _, point in found})
    heads = f"{' or '.join(map(str, left))} of {heads_of(found[0][0]['heads'], kind)} {kind} heads"
    several = f"mean of {len(found)} models " if len(found) > 1 else "one model "
    return {
        "result": f"{after:.2f} BLEU with {heads}, {several}that had {before:.2f}",
        "machine": models[0]["machine"],
        "minutes": f"{statistics.mean(point['train_seconds'] for _, point in found) / 60:.1f}",
        "date": max(one["date"] for one in models),
    }


def pruning_text(found: dict[str, Any]) -> str:
    return (
        "Heads kept of each kind after training on with gates (docs/guides/pruning.md) and taking out what they closed; "
        f"{found['machine']}, torch {found['torch']}, {found['date']}."
    )


CHOSEN_HEAD = [
    "whole, valid BLEU",
    "gates on",
    "penalty",
    "kept",
    "removed",
    "valid",
    "test",
    "MB",
    "a training step",
    "translating",
]


def chosen_rows(found: dict[str, Any]) -> list[list[str]]:
    """Of each kind the smallest model that is good enough, against the whole one."""
    whole, speed, rows = found["whole"], found["speed"], []
    for kind, name in found["chosen"].items():
        one = next(point for point in found["points"] if point["name"] == name)
        before, after = heads_of(whole["heads"], kind), heads_of(one["heads"], kind)
        figures = [f"{after} of {before}", f"{1 - after / before:.0%}"]
        figures += [f"{change(one, whole, split):+.2f}" for split in SPLITS] + [f"{one['bytes'] / 1e6:.2f}"]
        times = [f"{speed[what]['times_as_fast'][kind]:.2f} x" for what in ("training_step", "sentence")]
        rows.append([bleu_of(whole, "valid"), kind, f"{one['amount']:g}", *figures, *times])
    return rows


def chosen_text(found: dict[str, Any]) -> str:
    return (
        "How much smaller and faster: gates were trained once more. Of each kind stands the "
        f"model with the fewest such heads within {found['allowed']:g} BLEU of the whole one "
        f"({found['whole']['bytes'] / 1e6:.2f} MB) on the validation data; speeds are medians of alternating blocks."
    )


def change(one: dict[str, Any], whole: dict[str, Any], split: str) -> float:
    return float(one["scores"][split]["bleu"]["value"] - whole["scores"][split]["bleu"]["value"])
