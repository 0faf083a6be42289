"""Rows of comma- or tab-separated files, with the number of each line for messages."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from heedful.data.unusable import LineProblem, usable_text
from heedful.errors import DataError
from heedful.storage.reading import convert_command, likely_encoding, read_lines


class Row(NamedTuple):
    place: str  # file and line
    cells: list[str]  # without white space around them


def read_rows(path: Path) -> Iterator[Row]:
    """Yield the lines that are not empty; the first one decides whether tabs or commas separate its cells."""
    yield from parse_rows(enumerate(read_lines(path), start=1), str(path))


def parse_rows(lines: Iterable[tuple[int, bytes]], name: str) -> Iterator[Row]:
    """The rows of numbered lines; name: of the file, for messages."""
    delimiter = None
    for number, line in lines:
        place = f"{name} line {number}"
        text = usable_text(line, number)
        if isinstance(text, LineProblem):
            fix = f"convert it: {convert_command(name, likely_encoding(line))}" if text.kind == "utf8" else "correct that line"
            raise DataError(f"{place}: {text.text}", hint=fix)
        if text.strip():
            is_first, delimiter = delimiter is None, delimiter or ("\t" if "\t" in text else ",")
            cells = split_cells(text, place, delimiter)
            if is_first:
                refuse_other_separator(cells, place)
            yield Row(place, cells)


def line_cells(line: bytes, number: int, place: str) -> list[str]:
    """The cells of a comma-separated line; DataError if it is not UTF-8."""
    text = usable_text(line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line, number)
    if isinstance(text, LineProblem):
        raise DataError(f"{place}: {text.text}", hint="convert the file to UTF-8, or correct that line")
    return split_cells(text, place)


def split_cells(text: str, place: str, delimiter: str = ",") -> list[str]:
    """The cells of a line, without white space around them."""
    try:
        return [cell.strip() for cell in next(csv.reader([text], delimiter=delimiter))]
    except csv.Error as error:  # a carriage return outside quotes, or a cell of more than 128 KiB
        problem = "has a carriage return inside the line" if "\r" in text else f"cannot be read: {error}"
        hint = "end every line with a line feed, and remove other carriage returns" if "\r" in text else "correct that line"
        raise DataError(f"{place} {problem}; expected cells separated by {delimiter!r}", hint=hint) from None


def refuse_other_separator(cells: Sequence[str], place: str) -> None:
    """Raise an error for a first line that is one cell because its cells are not separated by commas."""
    mark = next((mark for mark in (";", "\t") if len(cells) == 1 and mark in cells[0]), None)
    if mark is not None:
        name = "tabs" if mark == "\t" else "semicolons"
        raise DataError(
            f"{place} is separated by {name}; expected commas: {cells[0]!r:.80}",
            hint="write the file with commas between columns, and a point in decimal numbers",
        )
