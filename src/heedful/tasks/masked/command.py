"""`heed fill`, and the options of `heed predict` for masked language models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from heedful.config.bounds import MAX_SMALL
from heedful.tasks.commands import Command, Option


@dataclass(frozen=True)
class PredictOptions:
    top: Annotated[int, Option("Tokens to show for each mask, the most probable first.", minimum=1, maximum=MAX_SMALL)] = 1


COMMAND = Command(
    "fill",
    "Fill every [MASK] of each line of text with its most probable token.\n\n"
    "--top 5 also prints the most probable tokens of each mask, with their probabilities.",
    "Text files, plain or .gz; - for standard input. Default: -.",
    PredictOptions,
    search=(),
)
