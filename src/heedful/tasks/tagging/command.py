"""`heed tag`, and the options of `heed predict` and `heed evaluate` for tagging."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from heedful.config.bounds import MAX_RESAMPLES
from heedful.tasks.commands import Command, Option


@dataclass(frozen=True)
class PredictOptions:
    split_punctuation: Annotated[bool, Option("Separate punctuation from words. Default: split at white space only.")] = False


@dataclass(frozen=True)
class EvaluateOptions:
    bootstrap: Annotated[
        int, Option("Bootstrap resamples for the 95% interval; 0: no interval.", minimum=0, maximum=MAX_RESAMPLES)
    ] = 1000
    baselines: Annotated[bool, Option("Also score the most frequent label, and that of each word, in the training data.")] = (
        False
    )
    output: Annotated[Path | None, Option("Write words, labels and predicted labels to this file.")] = None


COMMAND = Command(
    "tag",
    "Predict the label of each word of each line of text.\n\n"
    "Words are separated by white space, and so should be punctuation; --split-punctuation separates it. A run trained on "
    "numbers reads one vector per line, separated by tabs, with an empty line between sequences. --json adds probabilities "
    "and character offsets.",
    "Text files, plain or .gz; - for standard input. Default: -.",
    PredictOptions,
    EvaluateOptions,
    search=(),
)
