"""How verbs speak: results to stdout, as text or as JSON; tell to stderr."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from heedful.cli.ending import print_message, print_text

__all__ = ["print_message", "print_text", "put", "table"]

Json = Annotated[bool, typer.Option("--json", help="One machine-readable result on stdout.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or mps; the best there is unless said.")]
Precision = Annotated[str, typer.Option(help="fp32, bf16, or on a CPU int8: faster, and a little less exact.")]
Checkpoint = Annotated[str | None, typer.Option(help="best, last, average or step-N; best unless said.")]


def put(result: dict[str, Any]) -> None:
    """A result as one line of JSON."""
    print_text(json.dumps(result, ensure_ascii=False))


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


def table(rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns; the first row is the head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
