"""A claim about tagging: labels that depend on context need layers that mix tokens.

previous    the label of a word is the class of the word before it, "first" for the first word; classes and words are
            uniform, so that a word alone says nothing about its label
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from rich.console import Console

import heedful
from claims import Evidence
from heedful.config.toml import write_toml

CLASSES, WORDS = 4, 10  # words of each class
FIRST = "first"
Sentence = tuple[list[str], list[str]]  # words and labels

KINDS: dict[str, dict[str, Any]] = {
    "self-attention": {
        "layers": ["self-attention", "self-attention"],
        "heads": 2,
        "position": "sinusoidal",
        "feed_forward": 64,
    },
    "lstm": {"layers": ["lstm"]},
    "each word alone": {"layers": ["convolution", "convolution"], "kernel": 1, "feed_forward": 64},
}


def sentences(count: int, seed: int) -> list[Sentence]:
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        classes = [draw.randrange(CLASSES) for _ in range(draw.randint(4, 12))]
        words = [f"w{one}{draw.randrange(WORDS)}" for one in classes]
        made.append((words, [FIRST, *(f"c{one}" for one in classes[:-1])]))
    return made


def recipe(folder: Path, model: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "data": {"form": "tagged", "train": {"file": "train.tsv"}, "valid": {"file": "valid.tsv"}, "batch_tokens": 512},
        "task": {"name": "tagging"},
        "tokenizer": {"kind": "spaces"},
        "model": {"family": "encoder", "dim": 32, "dropout": 0.0, **model},
        "training": {
            "steps": 400,
            "save_every": 400,
            "validate_every": 400,
            "metric": "accuracy",
            "schedule": {"name": "cosine", "learning_rate": 5e-3, "warmup": 40},
        },
    }
    path = folder / "recipe.toml"
    path.write_text(write_toml(config))
    return path


def previous(folder: Path) -> Evidence:
    """Solved: 99%. At chance: within 3 points of the most frequent label."""
    train, test = sentences(2000, 1), sentences(500, 2)
    labels = [label for _, own in test for label in own]
    chance = max(labels.count(label) for label in set(labels)) / len(labels)
    shares, quiet = {}, Console(quiet=True)
    for name, model in KINDS.items():
        own = folder / name.replace(" ", "-")
        outcome = heedful.train(recipe(own, model), run=own / "run", train=train, valid=test, device="cpu", console=quiet)
        shares[name] = outcome.metrics["accuracy"]
    alone = shares["each word alone"]
    solved = all(share >= 0.99 for name, share in shares.items() if name != "each word alone")
    figures = {name: f"{share:.1%}" for name, share in shares.items()} | {"most frequent label": f"{chance:.1%}"}
    return Evidence(figures, solved and abs(alone - chance) < 0.03)
