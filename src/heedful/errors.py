"""Exceptions, each with the exit code of the command line.

    HeedfulError                 1   a bug of ours, unless it is a subclass
    ├── ConfigError              2   usage or config
    ├── DataError                3   text, tables, tokenizers
    │   └── MissingFile          3   a file or folder that does not exist
    ├── CheckpointError          4   run folders and checkpoints
    │   └── WriteError           4   a file that cannot be written: full disk, permissions
    ├── DivergedError            5   loss, gradient or weights became non-finite
    ├── OutOfMemory              6   out of memory, of the machine or its GPU
    ├── RankLost                 7   another process of a distributed run ended or does not answer
    └── Interrupted             75   stopped by a signal; the same command continues

A message is one sentence: what was given, what was expected. The hint says what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

Value = TypeVar("Value")

EXIT_CODES = {
    0: "success",
    1: "a bug in heedful",
    2: "usage or config",
    3: "data",
    4: "checkpoint, or a file that cannot be written",
    5: "training diverged",
    6: "out of memory",
    7: "another process of a distributed run ended",
    75: "interrupted; the same command resumes the run",
}


class HeedfulError(Exception):
    """Every error of the package that a user can cause or mend; `exit_code` is that of the command line.

    >>> try:
    ...     heedful.load("no-such-run")
    ... except heedful.HeedfulError as error:
    ...     error.exit_code
    4
    """

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        message = str(self.args[0])
        return message if self.hint is None else f"{message}\n\nhint: {self.hint}"


class ConfigError(HeedfulError):
    exit_code = 2


class DataError(HeedfulError):
    exit_code = 3


class MissingFile(DataError):
    """A file or folder of data does not exist."""

    def __init__(self, message: str, path: Path, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.path = path

    def __reduce__(self) -> tuple[type[MissingFile], tuple[str, Path, str | None]]:
        return type(self), (self.args[0], self.path, self.hint)


class CheckpointError(HeedfulError):
    exit_code = 4


class WriteError(CheckpointError):
    """A file could not be written; its previous content is unchanged."""


class DivergedError(HeedfulError):
    exit_code = 5


class OutOfMemory(HeedfulError):
    exit_code = 6


class RankLost(HeedfulError):
    exit_code = 7


class Interrupted(HeedfulError):
    exit_code = 75


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the most similar of `names`, if one is close."""
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return close[0] if close else None


def lookup(name: str, registry: Mapping[str, Value], kind: str) -> Value:
    """Return registry[name], or raise a ConfigError that lists the names and the nearest one."""
    if name in registry:
        return registry[name]
    close = nearest(name, registry)
    raise ConfigError(
        f"unknown {kind} {name!r}; expected one of: {', '.join(registry)}",
        hint=f"did you mean {close!r}?" if close else None,
    )
