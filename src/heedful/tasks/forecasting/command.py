"""`heed forecast`: `heed predict` for forecasting."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from heedful.tasks.commands import Command, Option


@dataclass(frozen=True)
class PredictOptions:
    holdout: Annotated[bool, Option("Forecast the last rows of the table from those before them, beside their values.")] = False
    picture: Annotated[
        Path | None,
        Option("Draw history, forecast and intervals: a .svg, .png or .pdf file.", suffixes=(".svg", ".png", ".pdf")),
    ] = None


@dataclass(frozen=True)
class EvaluateOptions:
    baselines: Annotated[
        bool, Option("Also show the ratio of the squared errors of this run to those of each baseline; these are always shown.")
    ] = False


COMMAND = Command(
    "forecast",
    "Forecast the steps that follow a table of time series.\n\n"
    "Reads a comma-separated table like the training data, with at least as many rows as the model looks back, and prints the "
    "steps after its last row as such a table, with a column for each quantile. Instead, each line may be a JSON object with a "
    "list for each column. --json prints one object per table.",
    "Comma-separated files, or lines of JSON, plain or .gz; - for standard input. Default: -.",
    PredictOptions,
    EvaluateOptions,
    search=(),
)
