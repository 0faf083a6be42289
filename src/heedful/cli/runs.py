"""heed runs."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.configs import format_value
from heedful.cli.output import Json, format_bytes, print_json, print_message, print_text, table

if TYPE_CHECKING:
    from heedful.runs.listing import RunComparison, RunList, RunSummary

RUNS = Path("runs")


def runs(
    folders: Annotated[
        list[Path] | None, typer.Argument(help="A folder of runs, or two run folders to compare. Default: runs.")
    ] = None,
    json: Json = False,
) -> None:
    """List the runs below a folder, or compare two runs: options that differ, and metrics."""
    from heedful.errors import ConfigError
    from heedful.runs.listing import compare_runs, list_runs

    given = folders or [RUNS]
    if len(given) > 2:
        raise ConfigError(f"{len(given)} folders given; expected one to list its runs, or two run folders to compare")
    if len(given) == 2:
        comparison = compare_runs(*given)
        print_json(comparison.to_dict()) if json else print_text(format_comparison(comparison))
        return
    found = list_runs(given[0])
    if json:
        print_json(found.to_dict())
        return
    if found.runs:
        print_text(format_runs(found))
    for damaged in found.damaged:
        print_message(f"damaged: {damaged.folder}: {damaged.reason}")
    if not found.runs and not found.damaged:
        print_message(f"there are no runs in {given[0]}")


def width() -> int:
    """A terminal's width; output into a file or pipe is not wrapped."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize


def format_runs(found: RunList) -> str:
    head = ("run", "task", "family", "parameters", "best", "steps", "size", "date")
    rows = [
        (str(run.folder), run.task, run.family, format_parameters(run), format_best(run), format_steps(run),
         format_bytes(run.size), format_date(run))
        for run in found.runs
    ]  # fmt: skip
    return table([head, *rows], width())


def format_comparison(comparison: RunComparison) -> str:
    pair = comparison.first, comparison.second
    rows = [("", *(str(run.folder) for run in pair))]
    figures = {"parameters": format_parameters, "steps": format_steps, "minutes": format_minutes, "date": format_date}
    rows += [(name, *map(form, pair)) for name, form in figures.items()]
    rows += [(one.name, format_metric(one.first), format_metric(one.second)) for one in comparison.metrics]
    rows += [(one.name, format_value(one.first), format_value(one.second)) for one in comparison.options]
    return table(rows, width())


def format_parameters(run: RunSummary) -> str:
    return "" if run.parameters is None else f"{run.parameters:,}"


def format_best(run: RunSummary) -> str:
    return f"{run.metric} {format_metric(run.value)}".rstrip()


def format_metric(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def format_steps(run: RunSummary) -> str:
    """The steps done, and the planned ones if there are more."""
    return f"{run.step:,}" if run.step >= run.steps else f"{run.step:,} of {run.steps:,}"


def format_minutes(run: RunSummary) -> str:
    return f"{run.seconds / 60:.1f}"


def format_date(run: RunSummary) -> str:
    """In the time zone of this machine."""
    return f"{run.date.astimezone():%Y-%m-%d %H:%M}"
