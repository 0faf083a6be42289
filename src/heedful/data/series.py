"""Time series, a row of numbers for each time step: [data] with form = "series".

    train = { file = "load.csv" }        comma-separated, plain or .gz; the first line has the names of the columns
    time = "date"                        the column of the time, ISO 8601, increasing; the others are numbers
    parts = [0.7, 0.1, 0.2]              train, valid and test in the order of time: fractions, or numbers of rows
                                         or: valid = { file = "…" } and test = { file = "…" }

    builtin = "brownian"                 a generated series (`series_toys.py`), with as many rows as `counts` says

Windows of a later part of the same file may look back into the rows before it. A line that is no row of the table is an error
with file, line and column. So is a missing cell, unless `max_unusable` allows as many: then it has the value of the row
before, and is reported.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from heedful.config.base import Config, Count, PathName, Problem, ZeroOrSmallCount, refuse, unused
from heedful.data.delimited import line_cells, refuse_other_separator
from heedful.data.fractions import PARTS, Fractions, fraction_problems
from heedful.data.json_text import parse_json
from heedful.data.report import CorpusCheck, Example, Finding, allowing
from heedful.data.series_toys import SERIES, SeriesToy
from heedful.data.sources import find_path
from heedful.data.splits import Counts
from heedful.data.toys import ToySplit
from heedful.data.unusable import EXAMPLES, LineProblem, Share, UnusableLines
from heedful.errors import DataError, nearest
from heedful.evaluation.tables import counted
from heedful.storage.reading import read_lines

Values = NDArray[np.float32]  # (rows, variables)
MAX_VALUE = 1e30  # the largest number of single precision is 3.4e38
MISSING = ("", "nan", "na", "n/a", "#n/a", "null", "none")  # a cell without a value, in lower case
Rows = tuple[Count, Count, Count]


class SeriesFile(Config):
    """One file."""

    file: PathName
    """Comma-separated file, plain or .gz."""


class SeriesConfig(Config):
    form: Literal["series"]
    """Form of the data: time series, a row of numbers for each time step."""
    builtin: SeriesToy | None = None
    """Generate this series."""
    counts: Counts | None = None
    """Number of rows of each split that are generated."""
    train: SeriesFile | None = None
    """Training file."""
    valid: SeriesFile | None = None
    """Validation file."""
    test: SeriesFile | None = None
    """Test file."""
    parts: Rows | Fractions | None = None
    """Divide `train` into train, valid and test in the order of time: fractions, or numbers of rows. Default: not divided."""
    time: str | None = None
    """Column of the time, in ISO 8601; default: none, rows are numbered."""
    header: bool = True
    """The first line has the names of the columns; false: they are named 1, 2, …."""
    max_unusable: Share = 0.0
    """Maximum fraction of rows with missing cells, which are filled from the row before; more are an error."""
    batch: Count = 32
    """Windows per batch."""
    prefetch: ZeroOrSmallCount = 4
    """Batches prepared ahead in the background; 0: none."""

    @model_validator(mode="after")
    def _fits_together(self) -> SeriesConfig:
        problems = []
        if self.builtin is not None and self.train is not None:
            problems.append(Problem("builtin", "given with data.train, expected one of them; remove one from the recipe"))
        if self.counts is not None and self.builtin is None:
            problems.append(Problem("counts", "would have no effect without data.builtin"))
        if self.builtin is None:
            missing = [name for name in ("train", "valid") if getattr(self, name) is None and not self.makes(name)]
            problems += [Problem(name, "missing; expected a table with a file, or data.builtin") for name in missing]
        else:
            problems += unused(self, dict.fromkeys(("valid", "test", "parts", "time", "header"), "data.builtin is set"))
        if not self.header and self.time is not None and not self.time.isdecimal():
            problems.append(Problem("time", f"given {self.time!r}, expected the number of a column, since header is false"))
        refuse([*problems, *self._part_problems()])
        return self

    def _part_problems(self) -> list[Problem]:
        if self.parts is None:
            return []
        problems = [] if is_rows(self.parts) else [Problem("parts", text) for text in fraction_problems(self.parts)]
        no_effect = {name: f"data.parts makes a {name} part of data.train" for name in ("valid", "test") if self.makes(name)}
        return [*problems, *unused(self, no_effect)]

    def makes(self, split: str) -> bool:
        """Whether `parts` makes this part."""
        return self.parts is not None and self.train is not None and self.parts[PARTS.index(split)] > 0

    @property
    def max_length(self) -> int:
        """The input of a model is a window, whose size is an option of the task."""
        return 1

    @property
    def sides(self) -> tuple[int, int]:
        return 0, self.max_length


def is_rows(parts: Rows | Fractions) -> bool:
    """Whether these are numbers of rows, rather than fractions."""
    return all(isinstance(part, int) for part in parts) and sum(parts) > 1


class SeriesTable(NamedTuple):
    """The rows of a file."""

    names: tuple[str, ...]  # of the variables
    values: Values
    times: tuple[str, ...] = ()  # as in the file; empty: it has no column of the time
    missing: tuple[tuple[int, LineProblem], ...] = ()  # rows with missing cells, by their index


class SeriesPart(NamedTuple):
    """The rows of a split, from `first` to the last; windows may look back into the rows before."""

    table: SeriesTable
    first: int = 0


class SeriesSource(NamedTuple):
    """The data of a split: a file, or a part of it, or a generated series."""

    path: Path | ToySplit
    part: str | None = None  # of data.parts; None: all of it


def find_split_file(data: SeriesConfig, split: str) -> SeriesSource | None:
    """Return the file of a split; None if there is no test set."""
    if data.builtin is not None:
        return SeriesSource(ToySplit(data.builtin, split, getattr(data.counts or Counts(), split)))
    part = split if data.makes(split) else None
    given: SeriesFile | None = data.train if part else getattr(data, split)
    return None if given is None else SeriesSource(find_path(given.file), part)


def read_split(data: SeriesConfig, source: SeriesSource) -> tuple[SeriesPart, UnusableLines]:
    """Read the rows of a split, and the rows before it in the same file; the missing cells are those of the split."""
    path = source.path
    unusable = UnusableLines(lambda problem: f"{path} line {problem.line}")
    if isinstance(path, ToySplit):
        return SeriesPart(toy_table(path)), unusable
    table = read_table(data, path)
    first, last = 0, len(table.values)
    if source.part is not None and data.parts is not None:
        first, last = part_bounds(data.parts, source.part, len(table.values))
    if last > len(table.values):
        raise DataError(f"{path} has {len(table.values):,} rows; expected at least {last:,}, the sum of data.parts")
    for row, problem in table.missing:
        if first <= row < last:
            unusable.add(problem)
    return SeriesPart(table._replace(values=table.values[:last], times=table.times[:last]), first), unusable


def part_bounds(parts: Rows | Fractions, name: str, rows: int) -> tuple[int, int]:
    """The first row of a part, and the row after the last one."""
    at = PARTS.index(name)
    if is_rows(parts):
        return int(sum(parts[:at])), int(sum(parts[: at + 1]))
    return round(sum(parts[:at]) * rows), round(sum(parts[: at + 1]) * rows)


def toy_table(toy: ToySplit) -> SeriesTable:
    names, draw = SERIES[toy.name]
    generator = np.random.Generator(np.random.Philox(key=[0, PARTS.index(toy.split)]))
    return SeriesTable(names, draw(toy.size, generator).astype(np.float32))


def table_text(names: Sequence[str], values: Values, time: str | None = None, times: Sequence[str] = ()) -> str:
    """A comma-separated table; time: name of the column of the times."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names if time is None else [time, *names])
    for at, row in enumerate(values):
        numbers = [str(number) for number in row]  # as many digits as single precision has
        writer.writerow(numbers if time is None else [times[at], *numbers])
    return out.getvalue()


def read_table(data: SeriesConfig, path: Path) -> SeriesTable:
    """Read a file."""
    return parse_table(data, enumerate(map(bytes, read_lines(path)), start=1), str(path))


def parse_table(data: SeriesConfig, lines: Iterable[tuple[int, bytes]], name: str) -> SeriesTable:
    """The table of numbered lines; a missing cell has the value of the row before it. name: of the file, for messages."""
    numbered = ((number, line) for number, line in lines if line.strip())
    columns: tuple[str, ...] = ()
    rows: list[list[float]] = []
    times: list[str] = []
    problems: list[tuple[int, LineProblem]] = []
    before: datetime | None = None
    for number, line in numbered:
        place = f"{name} line {number}"
        cells = line_cells(line, number, place)
        if not columns:
            columns = column_names(data, cells, place)
            if data.header:
                continue
        if len(cells) != len(columns):
            raise DataError(
                f"{place} has {len(cells)} column{'s' * (len(cells) != 1)}; expected {len(columns)}, as in the first line"
            )
        named = dict(zip(columns, cells, strict=True))
        if data.time is not None:
            moment = parse_time(named[data.time], f"{place}, column {data.time!r}")
            refuse_disorder(before, moment, f"{place}, column {data.time!r}")
            before = moment
            times.append(named.pop(data.time))
        missing = [column for column, cell in named.items() if is_missing(cell)]
        if missing:
            problem = LineProblem("blank", number, "source", f"the value of column {missing[0]!r} is missing")
            problems.append((len(rows), problem))
        if missing and not rows:
            raise DataError(f"{place}, column {missing[0]!r}: the value is missing; expected a number in the first row")
        before_it = rows[-1] if rows else []
        cells_of = enumerate(named.items())
        has_no_time = data.time is None
        rows.append(
            [
                before_it[at] if is_missing(cell) else parse_value(cell, one, place, may_be_time=has_no_time)
                for at, (one, cell) in cells_of
            ]
        )
    names = tuple(column for column in columns if column != data.time)
    if not rows:
        raise DataError(f"{name} has no rows; expected a line for each time step")
    return SeriesTable(names, np.array(rows, np.float32), tuple(times), tuple(problems))


def column_names(data: SeriesConfig, cells: Sequence[str], place: str) -> tuple[str, ...]:
    """The names of the columns, from the first line."""
    refuse_other_separator(cells, place)
    names = tuple(cells) if data.header else tuple(str(at + 1) for at in range(len(cells)))
    for at, one in enumerate(names):
        if not one or one in names[:at]:
            what = f"has two columns named {one!r}" if one else f"has no name for column {at + 1}"
            raise DataError(
                f"{place} {what}; expected a different name for each column", hint="set data.header = false if it has none"
            )
    if data.time is not None and data.time not in names:
        close = nearest(data.time, names)
        hint = f"did you mean {close!r}?" if close else "set data.time to the column of the time"
        raise DataError(f"{place} has no column {data.time!r}; its columns are: {', '.join(names)}", hint=hint)
    if len(names) == (data.time is not None):
        raise DataError(f"{place} has no column of numbers; expected at least one beside the time")
    return names


def is_missing(cell: str) -> bool:
    return cell.lower() in MISSING


def parse_value(cell: str, column: str, place: str, *, may_be_time: bool = False) -> float:
    """may_be_time: whether the table has no column of the time, which this column may be."""
    try:
        value = float(cell)
    except ValueError:
        hint = "correct it; in training data, a missing value may be an empty cell (data.max_unusable)"
        hint = f'set data.time = "{column}" if it is the time, or {hint}' if may_be_time else hint
        raise DataError(f"{place}, column {column!r}: {cell!r:.40} is not a number; expected a number", hint=hint) from None
    if not math.isfinite(value) or abs(value) > MAX_VALUE:
        raise DataError(f"{place}, column {column!r}: {cell!r:.40} is out of range; expected a number within ±{MAX_VALUE:g}")
    return value


def parse_cell(cell: str, column: str, place: str) -> float:
    """The number in a cell that must not be missing."""
    if is_missing(cell):
        raise DataError(f"{place}, column {column!r}: the value is missing; expected a number")
    return parse_value(cell, column, place)


def parse_columns(text: str, place: str) -> Any:
    """A table as JSON: an object with a list for each column."""
    return parse_json(text, place, hint="write an object with a list for each column, or a comma-separated table")


def refuse_unequal(columns: Mapping[str, Any], names: Sequence[str], place: str) -> None:
    """Raise an error for a dictionary that has no list of one of these columns, or lists of different length."""
    for name in names:
        if not isinstance(columns.get(name), Sequence | np.ndarray) or isinstance(columns[name], str):
            raise DataError(f"{place} has no list {name!r}; expected a list for each of: {', '.join(names):.200}")
    lengths = {name: len(columns[name]) for name in names}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name}: {length}" for name, length in lengths.items())
        raise DataError(f"{place} has lists of different length ({shown:.200}); expected as many values in each")


def column_values(columns: Mapping[str, Any], names: Sequence[str], place: str) -> Values:
    """The numbers of columns of equal length: (rows, variables)."""
    cells = ([parse_cell(str(cell), name, f"{place} row {at}") for at, cell in enumerate(columns[name], 1)] for name in names)
    return np.array(list(cells), np.float32).T


def parse_time(cell: str, place: str) -> datetime:
    try:
        return datetime.fromisoformat(cell)
    except ValueError:
        raise DataError(
            f"{place}: {cell!r:.40} is not a time; expected ISO 8601, such as 2024-05-31 or 2024-05-31 18:00"
        ) from None


def refuse_disorder(before: datetime | None, moment: datetime, place: str) -> None:
    if before is None:
        return
    if (before.tzinfo is None) != (moment.tzinfo is None):
        raise DataError(f"{place}: only one of {before} and {moment} has a time zone; expected all times with one, or none")
    if moment <= before:
        raise DataError(
            f"{place}: {moment} is not after {before}, the time before it; expected increasing times",
            hint="sort the rows by time, and remove duplicates",
        )


def join_tables(chunks: Iterable[Sequence[str]]) -> Iterator[list[str]]:
    """Yield tables from lines in chunks: every line of JSON is one; other lines are one table up to an empty line."""
    waiting: list[str] = []
    for chunk in chunks:
        tables = []
        for line in chunk:
            is_object = line.lstrip().startswith("{")
            if waiting and (is_object or not line.strip()):
                tables.append("\n".join(waiting))
                waiting = []
            if is_object:
                tables.append(line)
            elif line.strip():
                waiting.append(line)
        yield tables
    if waiting:
        yield ["\n".join(waiting)]


def find_anomalies(part: SeriesPart, name: str) -> Iterator[Finding]:
    """Gaps in the time and constant columns of the rows of a part, which training accepts; name: of the file. A gap is longer
    than one and a half times the 90% quantile of the steps, so that the weekends of daily data are none."""
    times, values = part.table.times[part.first :], part.table.values[part.first :]
    moments = [datetime.fromisoformat(time) for time in times]
    steps = [(after - before).total_seconds() for before, after in pairwise(moments)]
    longest = 1.5 * float(np.quantile(steps, 0.9, method="lower")) if steps else 0.0
    gaps = [at for at, step in enumerate(steps) if step > longest]
    if gaps:
        shown = tuple(Example(name, f"nothing between {times[at]} and {times[at + 1]}") for at in gaps[:EXAMPLES])
        yield Finding("gap", len(gaps), "kept", shown)
    if part.first or not len(values):  # constant columns are reported once for a file
        return
    constant = [column for column, low, high in zip(part.table.names, values.min(0), values.max(0), strict=True) if low == high]
    if constant:
        yield Finding("constant", len(constant), "kept", tuple(Example(name, f"column {one!r}") for one in constant[:EXAMPLES]))


def check_split(data: SeriesConfig, split: str, source: SeriesSource, least: int) -> CorpusCheck:
    """Read a split once and report its rows; least: rows that a window needs, those it looks back at included."""
    part, unusable = read_split(data, source)
    rows, available = len(part.table.values) - part.first, len(part.table.values)
    if available < least:
        raise DataError(
            f"{source.path} has {available:,} rows for {split}; expected at least {least:,}: task.look_back + task.horizon",
            hint="use a shorter task.look_back or task.horizon, or more rows",
        )
    if unusable.total > data.max_unusable * rows:
        place, text = unusable.examples["blank"][0]
        raise DataError(
            f"{place}: {text}; {unusable.total:,} of {rows:,} {split} rows have missing values, expected at most "
            f"the fraction data.max_unusable = {data.max_unusable:g}",
            hint=f"fill in the values, or set data.max_unusable = {allowing(unusable.total / rows)} to repeat those of the row "
            "before",
        )
    span = f", {part.table.times[part.first]} to {part.table.times[-1]}" if part.table.times else ""
    return CorpusCheck(
        split=split,
        title=str(source.path),
        total=rows,
        kept=rows,
        findings=(
            *(replace(finding, action="filled") for finding in unusable.findings()),
            *find_anomalies(part, str(source.path)),
        ),
        dropped=np.zeros(0, np.int64),
        unit="rows",
        remark=f"{counted(len(part.table.names), 'variables')}{span}",
    )
