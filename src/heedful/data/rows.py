"""Rows of text files, plain or .gz: the values of chosen columns, with the line where each row begins.

    .tsv     cells separated by tabs, no quoting; columns by name (line 1 is the header) or by number, counted from 1
    .csv     RFC 4180: cells separated by commas; one with a comma, a quote or a line break is in quotes; line 1 is the header
    .jsonl   one JSON object per line; columns are its fields, and a dot selects a nested one: `translation.en`

A file that does not have this form is a DataError with file and line. A row whose text is unusable is a `LineProblem`, which
the caller counts and reports.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from heedful.data.json_text import parse_json
from heedful.data.unusable import LineProblem, usable_text
from heedful.errors import DataError, nearest
from heedful.storage.reading import MAX_LINE, read_lines

Format = Literal["tsv", "csv", "jsonl"]
Columns = Sequence[int | str]
Row = tuple[int, list[Any] | LineProblem]  # line, and the values of the columns: texts, in JSONL any value
LABELED = "data.label and data.texts"  # the options that name the columns of labeled texts, for hints


class Reader(Protocol):
    def __call__(self, path: Path, columns: Columns, options: str = ...) -> Iterator[Row]:
        """The rows of a file; options: those that name the columns, for hints."""


def format_of(name: str) -> Format | None:
    """The format by the suffix of a file name; None if it has another one."""
    return next((form for form in READERS if name.lower().removesuffix(".gz").endswith(f".{form}")), None)


def read_tsv(path: Path, columns: Columns, options: str = LABELED) -> Iterator[Row]:
    by_name = any(isinstance(column, str) for column in columns)
    header: list[str] = []
    chosen = [column - 1 for column in columns if isinstance(column, int)]
    number = 0
    for number, raw in enumerate(read_lines(path), start=1):
        text = usable_text(raw, number)
        if by_name and number == 1:
            header = header_cells(path, text if isinstance(text, LineProblem) else text.split("\t"))
            chosen = find_columns(path, header, columns, options)
        elif isinstance(text, LineProblem):
            yield number, text
        else:
            cells = text.split("\t")
            if by_name:
                refuse_unequal(path, number, cells, header, "write a tab between two cells and none inside a cell")
            elif len(cells) <= max(chosen):
                raise DataError(
                    f"{path} line {number} has {len(cells)} column{'s' * (len(cells) != 1)}; "
                    f"expected at least {max(chosen) + 1}, separated by tabs",
                    hint=f"check {options}, counted from 1, and the tabs of that line",
                )
            yield number, [cells[column] for column in chosen]
    if by_name and number == 1:
        raise only_header(path)


def read_csv(path: Path, columns: Columns, options: str = LABELED) -> Iterator[Row]:
    lines: list[bytes] = []  # of the current row

    def decoded() -> Iterator[str]:
        for raw in read_lines(path):
            lines.append(raw)
            yield raw.decode("utf-8", "surrogateescape") + "\n"

    csv.field_size_limit(MAX_LINE)  # as long as a line of other files
    reader = csv.reader(decoded(), strict=True)
    header: list[str] = []
    chosen: list[int] = []
    count = 0
    while True:
        lines.clear()
        first = reader.line_num + 1  # line where the row begins
        try:
            cells = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            raise bad_quotes(path, first, len(lines), str(error)) from error
        count += 1
        problem = usable_text(b"\n".join(lines), first)
        if count == 1:
            header = header_cells(path, problem if isinstance(problem, LineProblem) else cells)
            chosen = find_columns(path, header, columns, options)
        elif isinstance(problem, LineProblem):
            yield first, problem
        elif not cells:
            yield first, LineProblem("blank", first, "source", "the line is empty; expected a row")
        else:
            refuse_unequal(path, first, cells, header, 'put cells with a comma in quotes: "…, …"')
            yield first, [cells[column] for column in chosen]
    if count == 1:
        raise only_header(path)


def read_jsonl(path: Path, columns: Columns, options: str = LABELED) -> Iterator[Row]:
    for number, raw in enumerate(read_lines(path), start=1):
        text = usable_text(raw, number)
        if isinstance(text, LineProblem):
            yield number, text
            continue
        place = f"{path} line {number}"
        record = parse_json(text, place, hint="write one JSON object per line, without blank lines")
        hint = f"check {options}, which name the fields"
        values = [find_field(record, str(column), place, hint) for column in columns]
        unusable = (problem for value in values if isinstance(problem := check_strings(value, number), LineProblem))
        yield number, next(unusable, values)


READERS: dict[Format, Reader] = {"tsv": read_tsv, "csv": read_csv, "jsonl": read_jsonl}


def header_cells(path: Path, cells: list[str] | LineProblem) -> list[str]:
    if isinstance(cells, LineProblem):
        raise DataError(f"{path} line 1: {cells.text}; expected a header, the names of the columns")
    if not any(cell.strip() for cell in cells):
        raise DataError(f"{path} line 1 is empty; expected a header, the names of the columns")
    return cells


def find_columns(path: Path, header: Sequence[str], names: Columns, options: str) -> list[int]:
    """The positions of columns in a header; DataError with the columns that exist."""
    for name in names:
        if header.count(str(name)) > 1:
            raise DataError(f"{path} line 1 has the column {name!r} twice", hint="rename one of them")
        if name not in header:
            raise DataError(
                f"{path} has no column {name!r}; its columns are: {', '.join(header)}",
                hint=missing_column_hint(str(name), header, options),
            )
    return [header.index(str(name)) for name in names]


def missing_column_hint(name: str, header: Sequence[str], options: str) -> str:
    if len(header) == 1:
        mark = next((mark for mark in ("\t", ";", "|", ",") if mark in header[0]), None)
        if mark is not None:
            fix = 'set format = "tsv" next to file' if mark == "\t" else "separate the columns as the format asks"
            return f"the only column name contains {mark!r}; {fix}"
    close = nearest(name, header)
    return f"did you mean {close!r}?" if close else f"check {options}, and that line 1 is the header"


def refuse_unequal(path: Path, line: int, cells: Sequence[str], header: Sequence[str], hint: str) -> None:
    if len(cells) != len(header):
        given = f"{len(cells)} cell{'s' * (len(cells) != 1)}"
        raise DataError(f"{path} line {line} has {given}; expected {len(header)}, as many as the header", hint=hint)


def bad_quotes(path: Path, line: int, lines: int, reason: str) -> DataError:
    """The error of a CSV row that begins at this line and was read for several lines."""
    where = f"{path} line {line}"
    if reason == "unexpected end of data" or lines > 1:
        return DataError(
            f"{where} begins a row whose quotes do not match: one is not closed",
            hint='close the quote; write a quote inside a quoted cell twice: ""',
        )
    if reason.endswith("expected after '\"'"):
        return DataError(
            f"{where} has text after a closing quote; expected a comma or the end of the row",
            hint='write a quote inside a quoted cell twice: ""',
        )
    return DataError(f"{where} is not CSV: {reason}", hint='put cells with a line break in quotes: "…"')


def only_header(path: Path) -> DataError:
    return DataError(f"{path} has a header, but no rows; expected at least one row after line 1")


def find_field(record: Any, field: str, place: str, hint: str) -> Any:
    """Return record["a.b"], or else record["a"]["b"]; DataError if there is no such field."""
    if not isinstance(record, dict):
        raise DataError(f"{place} is {shorten_json(record)}; expected a JSON object", hint='write for example {"text": "…"}')
    value: Any = record
    for key in [field] if field in record else field.split("."):
        if not isinstance(value, dict) or key not in value:
            close = nearest(field, record)
            raise DataError(
                f"{place} has no field {field!r}; its fields are: {', '.join(map(repr, record)) or 'none'}",
                hint=f"did you mean {close!r}?" if close else hint,
            )
        value = value[key]
    return value


def check_strings(value: Any, line: int) -> LineProblem | None:
    """Why the strings of a value cannot be used as text: JSON can escape what is no character."""
    strings = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    checked = (usable_text(part.encode("utf-8", "surrogatepass"), line) for part in strings if isinstance(part, str))
    return next((problem for problem in checked if isinstance(problem, LineProblem)), None)


def shorten_json(value: Any) -> str:
    """The beginning of a value, as JSON."""
    return f"{json.dumps(value, ensure_ascii=False):.40}"
