"""The table of text classification and tagging in docs/results.md: files of language.py, and baselines on the same data."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean
from typing import Any

from headers import join_distinct
from language_rows import DATA, data_of, is_labeled, options_of

Result = dict[str, Any]
HEAD = [
    "data",
    "recipe or baseline",
    "options",
    "seeds",
    "test accuracy",
    "valid",
    "test loss",
    "steps",
    "seconds",
    "machine",
    "date",
]


def label_rows(folder: Path, baselines: Result | None) -> list[list[str]]:
    """One row for each recipe with its options, and for each baseline: by data, the best test accuracy first."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for path in sorted(folder.glob("*.json")):
        result = json.loads(path.read_text())
        if is_labeled(result):
            groups.setdefault((result["recipe"], options_of(result)), []).append(result)
    found = [(data_of(seeds[0]), mean(accuracies(seeds, "test")), row(seeds)) for seeds in groups.values()]
    for data, scores in ({} if baselines is None else baselines["test_accuracy"]).items():
        for name, accuracy in scores.items():
            found.append((data, 100 * accuracy, baseline_row(DATA[data], name, accuracy, baselines or {})))
    return [cells for *_, cells in sorted(found, key=lambda one: (list(DATA).index(one[0]), -one[1]))]


def accuracies(seeds: list[Result], split: str) -> list[float]:
    return [100 * one["scores"][split]["accuracy"] for one in seeds]


def row(seeds: list[Result]) -> list[str]:
    test = accuracies(seeds, "test")
    each = f" ({', '.join(f'{value:.1f}' for value in test)})" if len(seeds) > 1 else ""
    return [
        DATA[data_of(seeds[0])],
        f"`{seeds[0]['recipe']}`",
        options_of(seeds[0]),
        str(len(seeds)),
        f"{mean(test):.1f}%{each}",
        f"{mean(accuracies(seeds, 'valid')):.1f}%",
        f"{mean(one['scores']['test']['loss'] for one in seeds):.3f}",
        join_distinct(f"{one['steps']:,}" + (" (stopped)" if one["stopped"] else "") for one in seeds),
        f"{mean(one['train_seconds'] for one in seeds):.0f}",
        join_distinct(one["machine"] for one in seeds),
        join_distinct(one["date"] for one in seeds),
    ]


def baseline_row(data: str, name: str, accuracy: float, baselines: Result) -> list[str]:
    return [data, name, "", "", f"{accuracy:.1%}", "", "", "", "", baselines["machine"], baselines["date"]]
