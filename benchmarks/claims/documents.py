"""A claim about hierarchical attention: documents of five sentences, in which one key word decides the label.

key_word    the other words say nothing, so a model that is right has found the word, and its attention can be checked
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from rich.console import Console

import heedful
from claims import Evidence
from heedful.config.toml import write_toml

LABELS = {"sport": ["goal", "match", "coach"], "food": ["bread", "soup", "spoon"], "music": ["violin", "choir", "tune"]}
KEYS = {word for words in LABELS.values() for word in words}
FILLERS = [f"w{number}" for number in range(60)]
SENTENCES, WORDS, DOCUMENTS = 5, (4, 8), {"train": 3000, "valid": 300, "test": 500}
STEPS = 500


def documents(count: int, seed: int) -> list[tuple[str, str]]:
    """(label, text) pairs; sentences end with a full stop and begin with a capital letter."""
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        label = draw.choice(list(LABELS))
        sentences = [[draw.choice(FILLERS) for _ in range(draw.randint(*WORDS))] for _ in range(SENTENCES)]
        chosen = draw.choice(sentences)
        chosen[draw.randrange(1, len(chosen))] = draw.choice(LABELS[label])
        made.append((label, " ".join(f"{' '.join(words).capitalize()} ." for words in sentences)))
    return made


def make_recipe() -> dict[str, object]:
    return {
        "data": {"form": "labeled", "folder": "unused", "batch": 64},
        "tokenizer": {"kind": "words", "min_frequency": 1, "lowercase": True},
        "model": {"family": "han", "dim": 32, "embedding": 32, "context": 32, "dropout": 0.1},
        "task": {"name": "classification", "labels": list(LABELS)},
        "training": {
            "steps": STEPS,
            "save_every": STEPS,
            "validate_every": STEPS,
            "metric": "accuracy",
            "schedule": {"name": "linear", "learning_rate": 5e-3, "warmup": 50},
            "threads": 1,
        },
    }


def key_word(folder: Path) -> Evidence:
    """The top word of the top sentence is the key word in 90% of 200 test documents."""
    data = {split: documents(count, seed) for seed, (split, count) in enumerate(DOCUMENTS.items())}
    folder.mkdir(parents=True, exist_ok=True)
    recipe = folder / "documents.toml"
    recipe.write_text(write_toml(make_recipe()))
    splits: dict[str, Any] = dict(data)
    heedful.train(recipe, run=folder / "run", **splits, device="cpu", console=Console(quiet=True))
    classifier = heedful.Classifier.load(folder / "run")
    accuracy, found, shown = classifier.evaluate("test")["accuracy"], 0, data["test"][:200]
    for _, text in shown:
        sentences = heedful.inspection.document(classifier, text).sentences
        top = max(sentences, key=lambda sentence: sentence.weight or 0.0)
        found += max(top.words, key=lambda word: word.weight).word.lower() in KEYS
    share = found / len(shown)
    figures = {"accuracy": f"{accuracy:.1%}", "key word is the top word of the top sentence": f"{share:.1%}"}
    return Evidence(figures, accuracy >= 0.95 and share >= 0.9)
