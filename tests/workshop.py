"""A small workshop for tests of whole runs: a reversing corpus, a tiny recipe, and the command line run in-process."""

from __future__ import annotations

import random
from pathlib import Path

from heedful.cli import run

WORDS = [f"w{i}" for i in range(20)]

RECIPE = """\
[data]
train = {{ tsv = "{data}" }}
valid = {{ tsv = "{data}" }}
test = {{ tsv = "{data}" }}
batch_tokens = 128

[tokenizer]
kind = "words"
min_frequency = 1

[model]
dim = 16
layers = 2
heads = 2
feed_forward = 32
norm = "pre"

[task]
validation_sentences = 4

[training]
steps = 6
save_every = 2
validate_every = 3
report_every = 1
"""


def write_pairs(path: Path, count: int = 60) -> Path:
    """Sentences and their reverse, apart by a tab."""
    draw = random.Random(1)
    sentences = [[draw.choice(WORDS) for _ in range(draw.randint(2, 8))] for _ in range(count)]
    path.write_text("".join(f"{' '.join(s)}\t{' '.join(reversed(s))}\n" for s in sentences))
    return path


def write_recipe(folder: Path, extra: str = "") -> Path:
    data = write_pairs(folder / "pairs.tsv")
    recipe = folder / "recipe.toml"
    recipe.write_text(RECIPE.format(data=data) + extra)
    return recipe


def heed(*arguments: str | Path) -> int:
    """The exit code of a command."""
    return run([str(argument) for argument in arguments])
