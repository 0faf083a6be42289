"""Output of commands: results to stdout, as text or as JSON; messages to stderr."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from heedful.cli.process import print_message, print_text
from heedful.evaluation.tables import table
from heedful.storage.writing import require_folder

__all__ = ["print_json", "print_message", "print_text", "table"]

Number = TypeVar("Number", float, float | None)
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or mps. Default: auto.")]
Precision = Annotated[str, typer.Option(help="fp32, bf16, or on a CPU int8: faster, slightly less accurate.")]
Checkpoint = Annotated[str | None, typer.Option(help="best, last, average or step-N. Default: best.")]

Search = Annotated[
    list[str] | None,
    typer.Option(
        "--search",
        "-s",
        metavar="NAME=VALUE …",
        help="A search option, such as -s beam=5; `heed config show search` lists all.",
    ),
]


def check_finite(value: Number) -> Number:
    """Reject nan and infinity, which the bounds of a float option do not exclude."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number.")
    return value


COMMAND_LINE = "command line"  # the origin of overrides and search options, for messages


def require_suffix(*suffixes: str) -> Callable[[Path | None], Path | None]:
    """A callback of an option that takes names of output files with one of these suffixes, so that another suffix, or a missing
    folder, is an error before any work."""

    def check(path: Path | None) -> Path | None:
        if path is not None and path.suffix not in suffixes:
            raise typer.BadParameter(f"given {str(path)!r}, expected a file name in {' or '.join(suffixes)}")
        if path is not None:
            require_folder(path)
        return path

    return check


def print_json(result: dict[str, Any]) -> None:
    """Print a result as one line of JSON."""
    print_text(format_json(result))


def format_json(result: dict[str, Any]) -> str:
    """One line of JSON; non-finite numbers become null, because JSON does not have them."""
    return json.dumps(replace_non_finite(result), ensure_ascii=False, allow_nan=False)


def replace_non_finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: replace_non_finite(item) for key, item in value.items()}
    return [replace_non_finite(item) for item in value] if isinstance(value, list | tuple) else value


def warn_of_unknown(words: Sequence[str]) -> None:
    """Warn of words outside the model's vocabulary; name the first three."""
    if words:
        more = f" and {len(words) - 3} more" if len(words) > 3 else ""
        print_message(
            f"warning: not in the model's vocabulary: {', '.join(words[:3])}{more}; the output for unknown words is unreliable"
        )


@contextmanager
def progress(description: str, *, quiet: bool = False) -> Iterator[Callable[[float], None]]:
    """A progress bar on a terminal; call the yielded function with the share completed since its last call."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, highlight=False)
    columns = TextColumn("{task.description}"), BarColumn(bar_width=24), TaskProgressColumn()
    eta = TextColumn("eta"), TimeRemainingColumn(compact=True)
    with Progress(*columns, *eta, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task(description, total=1.0)
        yield lambda share: bar.advance(task, share)


def format_bytes(count: int) -> str:
    """25274793984 -> 23.5 GiB"""
    return f"{count / 2**30:,.1f} GiB" if count >= 2**30 else f"{count / 2**20:,.1f} MiB"


def format_name(name: str) -> str:
    """The name of a figure without its unit, which is printed with the value."""
    return name.removesuffix("_bytes").replace("_", " ")
