"""How verbs speak: results to stdout, as text or as JSON; tell to stderr."""

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

Json = Annotated[bool, typer.Option("--json", help="One machine-readable result on stdout.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or mps. Default: cuda, else mps, else cpu.")]
Precision = Annotated[str, typer.Option(help="fp32, bf16, or on a CPU int8: faster, and a little less exact.")]
Checkpoint = Annotated[str | None, typer.Option(help="best, last, average or step-N; best unless said.")]

Search = Annotated[
    list[str] | None,
    typer.Option(
        "--search",
        "-s",
        metavar="NAME=VALUE …",
        help="A search option, such as -s beam=5; `heed config show search` lists all.",
    ),
]


def finite(value: float) -> float:
    """For float options: the bounds of an option do not exclude nan."""
    if not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number.")
    return value


WIDTH, NARROWEST = 80, 16  # columns of what people read; no column of a table is wrapped to less
COMMAND_LINE = "command line"  # the origin of overrides and search options, for messages


def print_json(result: dict[str, Any]) -> None:
    """A result as one line of JSON; a number that is not finite becomes null, since JSON has no such numbers."""
    print_text(json.dumps(finite_or_null(result), ensure_ascii=False, allow_nan=False))


def finite_or_null(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite_or_null(item) for key, item in value.items()}
    return [finite_or_null(item) for item in value] if isinstance(value, list | tuple) else value


def warn_of_unknown(words: Sequence[str]) -> None:
    """Of words that are in no vocabulary of the model, the first few by name."""
    if words:
        more = f" and {len(words) - 3} more" if len(words) > 3 else ""
        print_message(f"the model does not know: {', '.join(words[:3])}{more}; what it says of such words is a guess")


@contextmanager
def progress(what: str, *, quiet: bool = False) -> Iterator[Callable[[float], None]]:
    """A bar on a terminal while something takes long; tell it what share was done since it was told last."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, highlight=False)
    columns = TextColumn("{task.description}"), BarColumn(bar_width=24), TaskProgressColumn()
    eta = TextColumn("eta"), TimeRemainingColumn(compact=True)
    with Progress(*columns, *eta, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task(what, total=1.0)
        yield lambda share: bar.advance(task, share)


def bytes_in_words(count: int) -> str:
    """25274793984 -> 23.5 GiB"""
    return f"{count / 2**30:,.1f} GiB" if count >= 2**30 else f"{count / 2**20:,.1f} MiB"


def label(name: str) -> str:
    """The name of a figure for people; what it is counted in stands with the value."""
    return name.removesuffix("_bytes").replace("_", " ")


def table(rows: Sequence[Sequence[str]], width: int = WIDTH) -> str:
    """Aligned columns; the first row is the head. Cells are wrapped where the table would be wider than `width`."""
    widths = fit_columns(rows, width)
    lines: list[str] = []
    for row in rows:
        cells = [wrap(cell, size) for cell, size in zip(row, widths, strict=True)]
        for parts in zip_longest(*cells, fillvalue=""):
            lines.append("  ".join(part.ljust(size) for part, size in zip(parts, widths, strict=True)).rstrip())
    return "\n".join(lines)


def fit_columns(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Widths of the columns: as wide as their cells. Where that is too much, the last one is narrower, then those before
    it; the first keeps its width, and no word is cut."""
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    for at in range(len(columns) - 1, 0, -1):
        longest_word = max((len(word) for cell in columns[at] for word in cell.split()), default=0)
        surplus = sum(widths) + 2 * (len(widths) - 1) - width
        widths[at] -= min(max(surplus, 0), widths[at] - min(max(longest_word, NARROWEST), widths[at]))
    return widths


def wrap(cell: str, width: int) -> list[str]:
    if len(cell) <= width:
        return [cell]
    return textwrap.wrap(cell, width, break_long_words=False, break_on_hyphens=False)
