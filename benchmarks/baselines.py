"""Baselines of text classification and tagging, on the data of the recipes that they are compared with.

    python benchmarks/baselines.py          -> benchmarks/results/baselines.json, 3 minutes of CPU time

Classification: the baselines of `heed evaluate --baselines`, fitted on the training data of the recipe. The command needs a
run; a tiny one, trained for two steps, reads the same data. Tagging: the same, and the averaged perceptron of tagging.py. All
figures are accuracies on the test data.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tagging
from no_options import heed
from peers.machine import machine_info

from heedful.data.tagged import TaggedConfig

RECIPES = {"sst2": "sst2-roberta", "imdb": "imdb-han", "ewt": "ewt-upos-roberta"}  # data -> a recipe that reads it
EWT = {"form": "tagged", "folder": "ud-en-ewt", "column": "upos"}
TINY = (
    'tokenizer={kind="words", vocab=1000}',
    'model={family="bert", dim=16, layers=1, heads=1, position="rotary", segments=0}',
    'training={steps=2, save_every=2, validate_every=2, schedule={name="constant", learning_rate=1e-3}}',
)


def score_baselines(recipe: str, run: Path) -> dict[str, float]:
    """The test accuracy of each baseline of `heed evaluate`."""
    heed("train", recipe, *TINY, "--run", str(run), "--device", "cpu")
    found: dict[str, Any] = heed("evaluate", str(run), "--baselines", "--bootstrap", "0", "--device", "cpu")["baselines"]
    return {name: value["accuracy"] if isinstance(value, dict) else value for name, value in found.items()}


def score_perceptron() -> float:
    data = TaggedConfig.model_validate(EWT)
    return tagging.accuracy(tagging.train(tagging.read(data, "train")), tagging.read(data, "test"))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "baselines.json")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        accuracies = {data: score_baselines(recipe, Path(folder) / data) for data, recipe in RECIPES.items()}
    accuracies["ewt"]["averaged perceptron"] = score_perceptron()
    for data, baselines in accuracies.items():
        for name, accuracy in baselines.items():
            print(f"{data}: {name} {accuracy:.2%}")
    result = machine_info("scikit-learn") | {"recipes": RECIPES, "test_accuracy": accuracies}
    options.output.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
