"""Output of commands: results to stdout, as text or as JSON; messages to stderr."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Annotated, Any

import typer

from heedful.cli.process import print_message, print_text

__all__ = ["print_json", "print_message", "print_text", "table"]

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


def check_finite(value: float) -> float:
    """Reject nan and infinity, which the bounds of a float option do not exclude."""
    if not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number.")
    return value


WIDTH, MIN_COLUMN = 80, 16  # columns of text output; a column of a table is not wrapped to less than this
COMMAND_LINE = "command line"  # the origin of overrides and search options, for messages


def print_json(result: dict[str, Any]) -> None:
    """Print a result as one line of JSON; non-finite numbers become null, because JSON does not have them."""
    print_text(json.dumps(replace_non_finite(result), ensure_ascii=False, allow_nan=False))


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


def table(rows: Sequence[Sequence[str]], width: int = WIDTH) -> str:
    """Format rows as aligned columns; the first row is the header. Cells are wrapped to keep the table within `width`."""
    widths = fit_columns(rows, width)
    lines: list[str] = []
    for row in rows:
        cells = [wrap(cell, size) for cell, size in zip(row, widths, strict=True)]
        for parts in zip_longest(*cells, fillvalue=""):
            lines.append("  ".join(part.ljust(size) for part, size in zip(parts, widths, strict=True)).rstrip())
    return "\n".join(lines)


def fit_columns(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """The widths of the columns: those of their widest cells. If the table is too wide, the last column is narrowed first, then
    those before it; the first column keeps its width, and words are not broken."""
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    for at in range(len(columns) - 1, 0, -1):
        longest_word = max((len(word) for cell in columns[at] for word in cell.split()), default=0)
        surplus = sum(widths) + 2 * (len(widths) - 1) - width
        widths[at] -= min(max(surplus, 0), widths[at] - min(max(longest_word, MIN_COLUMN), widths[at]))
    return widths


def wrap(cell: str, width: int) -> list[str]:
    if len(cell) <= width:
        return [cell]
    return textwrap.wrap(cell, width, break_long_words=False, break_on_hyphens=False)
