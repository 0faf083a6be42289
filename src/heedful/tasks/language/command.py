"""`heed generate`, and the options of `heed predict` for language models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from heedful.config.bounds import MAX_SIZE
from heedful.tasks.commands import Command, Option


@dataclass(frozen=True)
class PredictOptions:
    prompt: Annotated[str | None, Option("Beginning of the text, instead of the lines of a file.")] = None
    length: Annotated[int, Option("Tokens to generate.", minimum=1, maximum=MAX_SIZE)] = 200
    stop: Annotated[list[str] | None, Option("Text that ends the generation; may be repeated.")] = None


COMMAND = Command(
    "generate",
    "Generate text from a prompt with a language model.\n\n"
    "The search method is that of the run; change it with -s, as in -s method=greedy.",
    "Files of prompts, one per line; - for standard input. Default: --prompt, or no prompt.",
    PredictOptions,
    search=("predict",),
    text="",
)
