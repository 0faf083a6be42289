"""`heed classify-series`, and the options of `heed evaluate` for the classification of series."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from heedful.config.bounds import MAX_RESAMPLES
from heedful.tasks.commands import Command, NoOptions, Option


@dataclass(frozen=True)
class EvaluateOptions:
    bootstrap: Annotated[
        int, Option("Bootstrap resamples for the 95% interval; 0: no interval.", minimum=0, maximum=MAX_RESAMPLES)
    ] = 1000
    baselines: Annotated[bool, Option("Also score the most frequent label.")] = False
    output: Annotated[Path | None, Option("Write a line of JSON for each series: gold, predicted, probabilities.")] = None


COMMAND = Command(
    "classify-series",
    "Predict the label of each series of vectors, such as a motion.\n\n"
    "Reads a comma-separated table with the columns of numbers of the training data, a row for each step; an empty line, or "
    "another value in the column that names the series, begins a new one. Instead, each line may be a JSON object with a list "
    "for each column. --json adds the probability of every label.",
    "Comma-separated files, or lines of JSON, plain or .gz; - for standard input. Default: -.",
    NoOptions,
    EvaluateOptions,
    search=(),
)
