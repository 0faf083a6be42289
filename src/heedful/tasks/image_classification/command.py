"""`heed classify-images`, and the options of `heed evaluate` for image classification."""

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
    baselines: Annotated[bool, Option("Also score the most frequent label, and that of the nearest mean image.")] = False
    output: Annotated[Path | None, Option("Write a line of JSON for each image: gold, predicted, probabilities.")] = None


COMMAND = Command(
    "classify-images",
    "Predict the label of each image.\n\n"
    "An input line is the path of an image, or an image as a data URI. --json adds the probability of every label.",
    "Images, or text files with the path of an image in each line, plain or .gz; - for standard input. Default: -.",
    NoOptions,
    EvaluateOptions,
    search=(),
)
