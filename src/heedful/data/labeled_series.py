"""Series with a label each, such as motions: [data] with form = "labeled_series".

    train = { file = "motions.csv" }     comma-separated, plain or .gz; the first line has the names of the columns
    valid = { file = "valid.csv" }
    sequence = "sequence"                the column that names the series of a row; its rows are together, in the order of time
    label = "label"                      the column of the label, the same in all rows of a series; all others are numbers

    builtin = "gaits"                    generated motions (`gaits.py`), as many as `counts` says

A line that is no row of the table is an error with file, line and column. So is a missing number, unless `max_unusable` allows
as many: then it has the value of the step before, and is reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from pydantic import model_validator

from heedful.config.base import Config, Count, PathName, Problem, Size, ZeroOrSmallCount, refuse, unused
from heedful.data.delimited import line_cells, refuse_other_separator
from heedful.data.fractions import PARTS
from heedful.data.gaits import COLUMNS, Frames, SeriesClassToy, make_gaits
from heedful.data.report import CorpusCheck, allowing
from heedful.data.series import is_missing, parse_cell
from heedful.data.sources import find_path
from heedful.data.splits import Counts
from heedful.data.toys import ToySplit
from heedful.data.unusable import LineProblem, Share, UnusableLines
from heedful.errors import DataError, nearest
from heedful.evaluation.tables import counted
from heedful.storage.reading import read_lines


class LabeledSeriesFile(Config):
    """One file."""

    file: PathName
    """Comma-separated file, plain or .gz."""


class LabeledSeriesConfig(Config):
    form: Literal["labeled_series"]
    """Form of the data: series of vectors of numbers, with a label for each series."""
    builtin: SeriesClassToy | None = None
    """Generate these series."""
    counts: Counts | None = None
    """Number of series of each split that are generated."""
    train: LabeledSeriesFile | None = None
    """Training file."""
    valid: LabeledSeriesFile | None = None
    """Validation file."""
    test: LabeledSeriesFile | None = None
    """Test file."""
    sequence: str = "sequence"
    """Column that names the series of a row."""
    label: str = "label"
    """Column of the label."""
    max_unusable: Share = 0.0
    """Maximum fraction of rows with missing numbers, which are filled from the step before; more are an error."""
    max_length: Size = 1024
    """Maximum steps of a series; a longer one is an error."""
    batch: Count = 32
    """Series per batch."""
    prefetch: ZeroOrSmallCount = 4
    """Batches prepared ahead in the background; 0: none."""

    @model_validator(mode="after")
    def _fits_together(self) -> LabeledSeriesConfig:
        problems = []
        if self.builtin is not None and self.train is not None:
            problems.append(Problem("builtin", "given with data.train, expected one of them; remove one from the recipe"))
        if self.counts is not None and self.builtin is None:
            problems.append(Problem("counts", "would have no effect without data.builtin"))
        if self.builtin is None:
            missing = [name for name in ("train", "valid") if getattr(self, name) is None]
            problems += [Problem(name, "missing; expected a table with a file, or data.builtin") for name in missing]
        else:
            problems += unused(self, dict.fromkeys(("valid", "test", "sequence", "label"), "data.builtin is set"))
        if self.sequence == self.label:
            problems.append(Problem("label", f"given {self.label!r}, expected another column than data.sequence"))
        refuse(problems)
        return self

    @property
    def sides(self) -> tuple[int, int]:
        return 0, self.max_length


class LabeledSeries(NamedTuple):
    label: str
    frames: Frames  # (steps, variables)
    place: str  # for messages


class SeriesSet(NamedTuple):
    """The series of a split."""

    columns: tuple[str, ...]  # of numbers
    series: list[LabeledSeries]
    unusable: UnusableLines  # rows with missing numbers


def find_split_file(data: LabeledSeriesConfig, split: str) -> Path | ToySplit | None:
    """The file of a split; None if there is no test set."""
    if data.builtin is not None:
        return ToySplit(data.builtin, split, getattr(data.counts or Counts(), split))
    given: LabeledSeriesFile | None = getattr(data, split)
    return None if given is None else find_path(given.file)


def read_split(data: LabeledSeriesConfig, path: Path | ToySplit) -> SeriesSet:
    if isinstance(path, ToySplit):
        made = make_gaits(PARTS.index(path.split), path.size)
        series = [LabeledSeries(label, frames, f"{path} {at}") for at, (label, frames) in enumerate(made, start=1)]
        return SeriesSet(COLUMNS, series, UnusableLines(lambda problem: str(path)))
    return parse_series(data, enumerate(map(bytes, read_lines(path)), start=1), str(path))


def parse_series(data: LabeledSeriesConfig, lines: Iterable[tuple[int, bytes]], name: str) -> SeriesSet:
    """The series of numbered lines; name: of the file, for messages."""
    columns: list[str] = []
    labels: dict[str, str] = {}  # by the name of the series
    rows: dict[str, list[list[float]]] = {}
    places: dict[str, str] = {}
    unusable = UnusableLines(lambda problem: f"{name} line {problem.line}")
    before = ""
    for number, line in lines:
        if not line.strip():
            continue
        place = f"{name} line {number}"
        cells = line_cells(line, number, place)
        if not columns:
            columns = named_columns(data, cells, place)
            continue
        if len(cells) != len(columns):
            raise DataError(f"{place} has {counted(len(cells), 'columns')}; expected {len(columns)}, as in the first line")
        named = dict(zip(columns, cells, strict=True))
        key, label = named.pop(data.sequence), named.pop(data.label)
        if not key or not label:
            raise DataError(
                f"{place}, column {(data.label if key else data.sequence)!r}: the value is missing; expected a text"
            )
        if key != before and key in rows:
            raise DataError(f"{place}: series {key!r:.40} continues after another one; expected its rows together")
        if labels.setdefault(key, label) != label:
            raise DataError(f"{place}: series {key!r:.40} has the labels {labels[key]!r:.40} and {label!r:.40}; expected one")
        before = key
        places.setdefault(key, place)
        missing = [column for column, cell in named.items() if is_missing(cell)]
        if missing and key in rows:
            unusable.add(LineProblem("blank", number, "source", f"the value of column {missing[0]!r} is missing"))
            last = dict(zip(named, map(str, rows[key][-1]), strict=True))
            named |= {column: last[column] for column in missing}
        rows.setdefault(key, []).append([parse_cell(cell, column, place) for column, cell in named.items()])
    if not rows:
        raise DataError(f"{name} has no rows; expected a line for each step of each series")
    for key, frames in rows.items():
        refuse_long(data, len(frames), f"{places[key]}: series {key!r:.40}")
    numbers = tuple(column for column in columns if column not in (data.sequence, data.label))
    series = [LabeledSeries(labels[key], np.array(frames, np.float32), places[key]) for key, frames in rows.items()]
    return SeriesSet(numbers, series, unusable)


def named_columns(data: LabeledSeriesConfig, cells: Sequence[str], place: str) -> list[str]:
    refuse_other_separator(cells, place)
    for at, one in enumerate(cells):
        if not one or one in cells[:at]:
            what = f"has two columns named {one!r:.40}" if one else f"has no name for column {at + 1}"
            raise DataError(f"{place} {what}; expected a different name for each column")
    for option, column in (("data.sequence", data.sequence), ("data.label", data.label)):
        if column not in cells:
            close = nearest(column, cells)
            hint = f"did you mean {close!r}?" if close else f"set {option} to the name of that column"
            raise DataError(f"{place} has no column {column!r}; its columns are: {', '.join(cells):.200}", hint=hint)
    if len(cells) == 2:
        raise DataError(f"{place} has no column of numbers; expected at least one beside {data.sequence!r} and {data.label!r}")
    return list(cells)


def refuse_long(data: LabeledSeriesConfig, steps: int, place: str) -> None:
    if steps > data.max_length:
        raise DataError(
            f"{place} has {steps:,} steps; expected at most data.max_length = {data.max_length:,}",
            hint="set a larger data.max_length, or cut the series",
        )


def check_split(data: LabeledSeriesConfig, split: str, path: Path | ToySplit) -> CorpusCheck:
    """Read a split once and report the number of series of each label."""
    found = read_split(data, path)
    counts, steps = Counter(one.label for one in found.series), sum(len(one.frames) for one in found.series)
    share = found.unusable.total / steps
    if share > data.max_unusable:
        place, text = found.unusable.examples["blank"][0]
        raise DataError(
            f"{place}: {text}; {found.unusable.total:,} of {steps:,} rows have missing numbers, expected at most "
            f"the fraction data.max_unusable = {data.max_unusable:g}",
            hint=f"fill in the numbers, or set data.max_unusable = {allowing(share)} to repeat those of the step before",
        )
    return CorpusCheck(
        split=split,
        title=str(path),
        total=len(found.series),
        kept=len(found.series),
        findings=tuple(replace(finding, action="filled") for finding in found.unusable.findings()),
        dropped=np.zeros(0, np.int64),
        unit="series",
        items="series",
        remark=f"{counted(len(found.columns), 'variables')}; "
        f"{', '.join(f'{label}: {count:,}' for label, count in counts.items())}",
    )
