"""Train a small translation model on generated pairs, and evaluate it on others.

train, test = (list(sample(dictionary, split, count)) for split, count in (("train", 20_000), ("test", 500)))
translator = learn(folder / "run", train, {"family": "bahdanau", "dim": 64}, steps=600)
evaluate(translator, test).tokens
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from heedful.config.toml import write_value
from heedful.data.toys import Pair
from heedful.runs.config import read_run
from heedful.runs.train import train_config
from heedful.tasks.translation.predictor import Translator

VALID = 100  # pairs for the validation at the end of training
COMMON: dict[str, Any] = {
    "data.batch_tokens": 512,  # about 64 sentences
    "data.max_length": 64,
    "tokenizer.kind": "words",
    "tokenizer.shared": False,
    "tokenizer.min_frequency": 1,
    "task.label_smoothing": 0.0,
    "task.validation_metrics": [],
    "task.samples": 0,
    "training.schedule.name": "cosine",
    "training.schedule.learning_rate": 3e-3,
    "training.schedule.warmup": 100,
    "search.method": "greedy",
    "search.max_extra": 10,
}
MODELS: dict[str, dict[str, Any]] = {
    "sutskever": {"family": "sutskever", "dim": 64, "layers": 1},
    "bahdanau": {"family": "bahdanau", "dim": 64, "embedding": 32, "readout": 64},
    "luong": {"family": "luong", "dim": 64, "layers": 1, "dropout": 0.0},
    "gnmt": {"family": "gnmt", "dim": 64, "layers": 2, "dropout": 0.0},
    "convs2s": {"family": "convs2s", "dim": 64, "layers": 3, "channels": 64, "dropout": 0.0},
    "bytenet": {"family": "bytenet", "dim": 32, "sets": 1},
    "transformer": {
        "family": "transformer", "dim": 64, "layers": 2, "heads": 4, "feed_forward": 128,
        "norm": "pre", "tie": "output", "dropout": 0.0,
    },
}  # fmt: skip


def learn(folder: Path, pairs: Sequence[Pair], model: Mapping[str, Any], *, steps: int, **also: Any) -> Translator:
    """Train on all but the last pairs, which are for validation. More options with `__` for a dot: training__steps=100."""
    files = {"train": pairs[:-VALID], "valid": pairs[-VALID:]}
    tables = {f"data.{split}": {"tsv": str(write(some, folder / f"{split}.tsv"))} for split, some in files.items()}
    every = {f"training.{what}_every": steps for what in ("validate", "save", "report")}
    overrides = {name.replace("__", "."): value for name, value in also.items()}
    settings = COMMON | tables | every | {"training.steps": steps} | {f"model.{k}": v for k, v in model.items()} | overrides
    run = folder / "run"
    train_config(
        read_run(None, [f"{name}={write_value(value)}" for name, value in settings.items()]).config,
        run,
        device="cpu",
        console=Console(quiet=True),
    )
    return Translator.load(run, device="cpu")


def write(pairs: Sequence[Pair], path: Path) -> Path:
    """Write a table of two columns, as `data.train=[{tsv=…}]` reads it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{' '.join(pair.source)}\t{' '.join(pair.target)}\n" for pair in pairs))
    return path


def sources_of(pairs: Sequence[Pair]) -> list[str]:
    return [" ".join(pair.source) for pair in pairs]


def targets_of(pairs: Sequence[Pair]) -> list[str]:
    return [" ".join(pair.target) for pair in pairs]


class Right(NamedTuple):
    """Accuracy from 0 to 1."""

    exact: float  # whole sentences
    tokens: float  # words at the right positions


def right(generated: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> Right:
    """Missing and additional words count as errors."""
    exact = sum(list(one) == list(other) for one, other in zip(generated, references, strict=True))
    positions = [both for one, other in zip(generated, references, strict=True) for both in itertools.zip_longest(one, other)]
    return Right(exact / len(references), sum(one == other for one, other in positions) / len(positions))


def evaluate(translator: Translator, pairs: Sequence[Pair]) -> Right:
    """Accuracy of greedy search."""
    generated = translator.translate(sources_of(pairs))
    return right([one.split() for one in generated], [pair.target for pair in pairs])


def percent(share: float) -> str:
    return f"{100 * share:.1f}%"
