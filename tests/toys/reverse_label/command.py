"""`heed reverse-label`: `heed predict` for the toy task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from heedful.tasks.commands import Command, Option


@dataclass(frozen=True)
class PredictOptions:
    upper: Annotated[bool, Option("Print upper case.")] = False


@dataclass(frozen=True)
class EvaluateOptions:
    first: Annotated[int, Option("Number of examples.", minimum=1, maximum=10**9)] = 10


COMMAND = Command(
    "reverse-label",
    "Predict the reversed label of each line of text.",
    "Text files, plain or .gz; - for standard input. Default: -.",
    PredictOptions,
    EvaluateOptions,
    search=(),
)
