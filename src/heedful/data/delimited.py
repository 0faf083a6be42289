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
            cells = [cell.strip() for cell in next(csv.reader([text], delimiter=delimiter))]
            if is_first:
                refuse_other_separator(cells, place)
            yield Row(place, cells)


def refuse_other_separator(cells: Sequence[str], place: str) -> None:
    """Raise an error for a first line that is one cell because its cells are not separated by commas."""
    mark = next((mark for mark in (";", "\t") if len(cells) == 1 and mark in cells[0]), None)
    if mark is not None:
        name = "tabs" if mark == "\t" else "semicolons"
        raise DataError(
            f"{place} is separated by {name}; expected commas: {cells[0]!r:.80}",
            hint="write the file with commas between columns, and a point in decimal numbers",
        )
