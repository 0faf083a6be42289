"""Tables as text: aligned columns that fit a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import zip_longest

WIDTH, MIN_COLUMN = 80, 16  # columns of text output; a column of a table is not wrapped to less than this


def inflect(plural: str, count: float) -> str:
    """A noun after a number: pair after 1, pairs after others."""
    return (
        plural
        if count != 1
        else {"batches": "batch", "passes": "pass", "series": "series"}.get(plural, plural.removesuffix("s"))
    )


def counted(count: float, plural: str) -> str:
    """A number with its noun: 1 pair, 1,200 pairs."""
    return f"{count:,} {inflect(plural, count)}"


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
