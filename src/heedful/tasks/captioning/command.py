"""`heed caption`, and the options of `heed evaluate` for captioning."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from heedful.config.bounds import MAX_RESAMPLES
from heedful.tasks.commands import Command, NoOptions, Option


@dataclass(frozen=True)
class EvaluateOptions:
    metrics: Annotated[str, Option("Metrics: any of bleu, chrf, ter, gleu, exact_match.")] = "bleu,chrf,ter,exact_match"
    bootstrap: Annotated[
        int, Option("Bootstrap resamples for the 95% interval; 0: no interval.", minimum=0, maximum=MAX_RESAMPLES)
    ] = 1000
    output: Annotated[Path | None, Option("Write captions to this file.")] = None


COMMAND = Command(
    "caption",
    "Describe images.\n\n"
    "An input line is the path of an image, or an image as a data URI. With -s n_best=N each image yields N rows: score TAB "
    "text. heed inspect image shows which part of the image each word attends to.",
    "Images, or text files with the path of an image in each line, plain or .gz; - for standard input. Default: -.",
    NoOptions,
    EvaluateOptions,
    ensembles=True,
)
