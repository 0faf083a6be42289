"""The commands of a task as data: `cli/` mounts them. Nothing here or in a task's command.py imports torch, pydantic or typer.

    @dataclass(frozen=True)
    class PredictOptions:
        length: Annotated[int, Option("Tokens to generate.", minimum=1, maximum=MAX_SIZE)] = 200

becomes the option `--length`. `heed predict` and `heed evaluate` have the options of all tasks and refuse those that the task
of the run does not have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple


class Option(NamedTuple):
    """The declaration of a command-line option, in the annotation of a field."""

    help: str
    flag: str | None = None  # default: the name of the field, --with-dashes
    minimum: int | None = None
    maximum: int | None = None
    suffixes: tuple[str, ...] = ()  # of a file that is written


@dataclass(frozen=True)
class NoOptions:
    """A task without options of its own."""


class Command(NamedTuple):
    name: str  # the natural name of `heed predict` for this task: translate, generate, classify
    help: str
    argument: str  # help of the input files
    predict: type[Any] = NoOptions  # options of `heed predict` and of the natural name
    evaluate: type[Any] = NoOptions  # options of `heed evaluate`
    search: tuple[Literal["predict", "evaluate"], ...] = ("predict", "evaluate")  # commands that take search options
    ensembles: bool = False  # whether several runs can predict together
    text: str | None = None  # input of the natural name where no file is given; None: standard input
