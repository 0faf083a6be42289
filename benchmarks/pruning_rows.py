"""The section on pruning in docs/results.md, from the JSON of pruning.py."""

from __future__ import annotations

import statistics
import tomllib
from collections.abc import Iterator
from typing import Any

from headers import is_measured, with_header

from heedful.runs.recipes import all_recipes

SPLITS = ("valid", "test")
SEED_KINDS = ("encoder", "all")  # kinds that were pruned in models of several seeds

HEAD = ["", "penalty", "encoder", "decoder", "cross", "valid BLEU", "test BLEU", "parameters", "seconds of training"]


def heads_of(heads: dict[str, Any], kind: str) -> int:
    """The number of heads of one kind or of all; counts are per layer or already summed."""
    counts = {name: count if isinstance(count, int) else sum(count) for name, count in heads.items()}
    return sum(counts.values()) if kind == "all" else counts[kind]


def bleu_of(point: dict[str, Any], split: str) -> str:
    return f"{point['scores'][split]['bleu']['value']:.2f}" if split in point["scores"] else ""


def counts(heads: dict[str, Any]) -> list[str]:
    return [str(heads_of(heads, kind)) for kind in ("encoder", "decoder", "cross")]


def pruning_rows(results: dict[str, Any]) -> list[list[str]]:
    """The full model, then the models pruned with gates; heads kept by kind."""
    whole = results["whole"]
    figures = [bleu_of(whole, "valid"), bleu_of(whole, "test"), f"{whole['parameters']:,}", ""]
    rows = [["full model", "", *counts(whole["heads"]), *figures]]
    for point in results["points"]:
        if point["method"] == "gates":
            figures = [
                bleu_of(point, "valid"),
                bleu_of(point, "test"),
                f"{point['parameters']:,}",
                f"{point['train_seconds']:.0f}",
            ]
            rows.append([f"gates on {point['kind']}", f"{point['amount']:g}", *counts(point["heads"]), *figures])
    return rows


SEEDS_HEAD = ["model", "gates on", "encoder", "decoder", "cross", "valid BLEU", "change", "test BLEU", "change"]


def seed_rows(models: dict[str, dict[str, Any]], penalty: float) -> list[list[str]]:
    """The heads kept with one penalty in models of several seeds, and the change of BLEU."""
    rows = []
    for name, results in models.items():
        for point in results["points"]:
            if point["method"] == "gates" and point["amount"] == penalty and point["kind"] in SEED_KINDS:
                rows.append([name, point["kind"], *counts(point["heads"]), *costs(point, results["whole"])])
    return rows


def costs(point: dict[str, Any], whole: dict[str, Any]) -> list[str]:
    return [part for split in SPLITS for part in (bleu_of(point, split), f"{change(point, whole, split):+.2f}")]


def seed_text(models: dict[str, dict[str, Any]], penalty: float) -> str:
    """The mean change of BLEU by kind of gated heads."""
    changes = []
    for kind in SEED_KINDS:
        lost = [
            change(point, results["whole"], "test")
            for results in models.values()
            for point in results["points"]
            if (point["method"], point["kind"], point["amount"]) == ("gates", kind, penalty)
        ]
        changes.append(f"{statistics.mean(lost):+.2f} with gates on {kind}")
    return (
        f"{len(models)} models with different seeds, pruned with the same penalty of {penalty:g}, fixed in advance: "
        f"BLEU on test changes by {' and '.join(changes)}, on average."
    )


def update_pruning_recipe(models: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Write the header of the recipe of these models if its current settings were measured; yield messages."""
    first = next(iter(models.values()))
    path = all_recipes()[first["recipe"]]
    gates = tomllib.loads(path.read_text(encoding="utf-8"))["training"]["gates"]
    setting = ("gates", *gates["kinds"], gates["penalty"])
    fitting = [model for model in models.values() if "settings" in model and is_measured(model, path)]
    results = [
        (model["whole"], point)
        for model in fitting
        for point in model["points"]
        if (point["method"], point["kind"], point["amount"]) == setting
    ]
    path.write_text(with_header(path.read_text(encoding="utf-8"), header(results, fitting)), encoding="utf-8")
    yield f"{first['recipe']}: {len(results)} of {len(models)} results match the current recipe"


def header(results: list[tuple[dict[str, Any], dict[str, Any]]], models: list[dict[str, Any]]) -> dict[str, str]:
    if not results:
        return {}
    before, after = (
        statistics.mean(point["scores"]["test"]["bleu"]["value"] for point in some) for some in zip(*results, strict=True)
    )
    (kind,) = {point["kind"] for _, point in results}
    left = sorted({heads_of(point["heads"], kind) for _, point in results})
    heads = f"{' or '.join(map(str, left))} of {heads_of(results[0][0]['heads'], kind)} {kind} heads"
    several = f"mean of {len(results)} models " if len(results) > 1 else "one model "
    return {
        "result": f"{after:.2f} BLEU with {heads}, {several}with {before:.2f} before pruning",
        "machine": models[0]["machine"],
        "minutes": f"{statistics.mean(point['train_seconds'] for _, point in results) / 60:.1f}",
        "date": max(point["date"] for point in models),
    }


def pruning_text(results: dict[str, Any]) -> str:
    return (
        "Heads of each kind that remain after training with gates (docs/guides/pruning.md) and removing closed heads; "
        f"{results['machine']}, torch {results['torch']}, {results['date']}."
    )


CHOSEN_HEAD = [
    "full model, valid BLEU",
    "gates on",
    "penalty",
    "kept",
    "removed",
    "valid",
    "test",
    "MB",
    "training step",
    "translation",
]


def chosen_rows(results: dict[str, Any]) -> list[list[str]]:
    """For each kind, the smallest model within the allowed loss of BLEU, compared with the full model."""
    whole, speed, rows = results["whole"], results["speed"], []
    for kind, name in results["chosen"].items():
        point = next(point for point in results["points"] if point["name"] == name)
        before, after = heads_of(whole["heads"], kind), heads_of(point["heads"], kind)
        figures = [f"{after} of {before}", f"{1 - after / before:.0%}"]
        figures += [f"{change(point, whole, split):+.2f}" for split in SPLITS] + [f"{point['bytes'] / 1e6:.2f}"]
        times = [f"{speed[what]['times_as_fast'][kind]:.2f} x" for what in ("training_step", "sentence")]
        rows.append([bleu_of(whole, "valid"), kind, f"{point['amount']:g}", *figures, *times])
    return rows


def chosen_text(results: dict[str, Any]) -> str:
    return (
        "Size and speed; gates were trained again. For each kind, the model with the "
        f"fewest such heads within {results['allowed']:g} BLEU of the full model "
        f"({results['whole']['bytes'] / 1e6:.2f} MB) on the validation data; speeds are medians of alternating blocks."
    )


def change(point: dict[str, Any], whole: dict[str, Any], split: str) -> float:
    return float(point["scores"][split]["bleu"]["value"] - whole["scores"][split]["bleu"]["value"])
