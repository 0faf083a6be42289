"""A claim about extractive question answering: the answer is found by matching the question with a text.

span    three things lie in three places; the question names one of them, so that the text alone leaves a chance of one third
"""

from __future__ import annotations

import random
from pathlib import Path

from rich.console import Console

import heedful
from claims import Evidence
from heedful.config.toml import write_toml

THINGS = ("key", "cup", "book", "ring", "coin", "pen", "map", "lamp", "hat", "ball", "shoe", "bag")
COLORS = ("red", "blue", "green", "old", "big", "small")
PLACES = ("in the {} box", "in the {} drawer", "on the {} table", "on the {} shelf", "under the {} chair", "behind the {} door")
COUNTS = {"train": 2000, "valid": 200, "test": 500}
STEPS = 500
Example = tuple[str, str, str, int]  # question, context, answer, its first character


def example(draw: random.Random) -> Example:
    things, context, starts = draw.sample(THINGS, 3), "", []
    places = [draw.choice(PLACES).format(draw.choice(COLORS)) for _ in things]
    for thing, place in zip(things, places, strict=True):
        context += f"the {thing} is "
        starts.append(len(context))
        context += f"{place}. "
    at = draw.randrange(len(things))
    return f"where is the {things[at]}?", context.strip(), places[at], starts[at]


def make_recipe(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "data": {"form": "spans", "train": {"file": "train.jsonl"}, "valid": {"file": "valid.jsonl"}, "max_length": 64}
        | {"stride": 32, "batch": 32},
        "task": {"name": "span"},
        "tokenizer": {"kind": "words", "min_frequency": 1},
        "model": {"family": "encoder", "dim": 64, "layers": ["lstm", "self-attention"], "heads": 4, "dropout": 0.0},
        "training": {
            "steps": STEPS,
            "save_every": STEPS,
            "validate_every": STEPS,
            "metric": "exact_match",
            "schedule": {"name": "linear", "learning_rate": 2e-3, "warmup": 50},
            "threads": 1,
        },
    }
    path = folder / "recipe.toml"
    path.write_text(write_toml(config))
    return path


def span(folder: Path) -> Evidence:
    """Solved: 95% of unseen texts. By chance: the place that is mentioned first."""
    splits = {split: [example(random.Random(f"{split} {at}")) for at in range(count)] for split, count in COUNTS.items()}
    quiet = Console(quiet=True)
    heedful.train(make_recipe(folder), run=folder / "run", device="cpu", console=quiet, **splits)  # type: ignore[arg-type]
    figures = heedful.SpanExtractor.load(folder / "run").evaluate("test")
    first = sum(context.index(answer) == start < 15 for _, context, answer, start in splits["test"]) / COUNTS["test"]
    shown = {"exact match": f"{figures['exact_match']:.1%}", "F1": f"{figures['f1']:.1%}", "first place": f"{first:.1%}"}
    return Evidence(shown, figures["exact_match"] >= 0.95)
