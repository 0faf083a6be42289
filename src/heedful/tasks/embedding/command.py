"""`heed embed`: `heed predict` for embedding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from heedful.tasks.commands import Command, Option


@dataclass(frozen=True)
class PredictOptions:
    pooling: Annotated[
        Literal["mean", "cls"] | None, Option("Pooling of the hidden states. Default: that of the run, else mean.")
    ] = None


COMMAND = Command(
    "embed",
    "Encode each line of text as a vector of length 1.\n\n"
    "Prints the numbers of a vector, separated by spaces. Reads runs of task embedding, and as pooled hidden states any other "
    "run of an encoder.",
    "Text files, plain or .gz; - for standard input. Default: -.",
    PredictOptions,
    search=(),
)
