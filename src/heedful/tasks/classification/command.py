"""`heed classify`, and the options of `heed evaluate` for classification."""

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
    against: Annotated[Path | None, Option("Baseline run: test whether the difference is significant.")] = None
    baselines: Annotated[bool, Option("Also score the majority class and linear models of words, fitted on train.")] = False
    output: Annotated[Path | None, Option("Write a line of JSON for each text: gold, predicted, probabilities.")] = None


COMMAND = Command(
    "classify",
    "Predict the label of each line of text.\n\n"
    "A run trained on several texts per example expects them separated by tabs. --json adds the probability of every label.",
    "Text files, plain or .gz; - for standard input. Default: -.",
    NoOptions,
    EvaluateOptions,
    search=(),
)
