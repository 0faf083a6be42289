"""Matrices of numbers as text, with the names of rows and columns."""

from __future__ import annotations

from collections.abc import Sequence

from heedful.evaluation.tables import table
from heedful.inspection.drawing.text_heatmap import columns, pad_to_width, printable_token

UNITS = {1.0: "nats", 1e-3: "thousandths of a nat", 1e-6: "millionths of a nat", 1e-9: "billionths of a nat"}


def choose_unit(values: Sequence[Sequence[float]], unit: str = "nats") -> tuple[float, str]:
    """The largest unit in which the largest value is at least 1, so that small values are not all shown as 0.00. unit: of the
    values."""
    largest = max(abs(value) for row in values for value in row)
    size = next((size for size in UNITS if largest >= size), 1.0)
    return size, UNITS[size] if unit == "nats" else unit if size == 1.0 else f"{size:g} x {unit}"


def rounded_matrix(rows: Sequence[str], names: Sequence[str], values: Sequence[Sequence[float]]) -> str:
    """Values with two decimals."""
    cells = [[f"{round(value, 2) + 0.0:.2f}" for value in row] for row in values]
    width = max(5, *(len(cell) for row in cells for cell in row))
    cells = [[cell.rjust(width) for cell in row] for row in cells]
    return table([("", *names), *((name, *row) for name, row in zip(rows, cells, strict=True))])


def full_matrix(rows: Sequence[str], names: Sequence[str], values: Sequence[Sequence[float]]) -> str:
    """Values with four decimals, each line as long as it is."""
    names, rows = [printable_token(name) for name in names], [printable_token(name) for name in rows]
    cells = [[f"{value:.4f}" for value in row] for row in values]
    widths = [max(columns(name), *(len(row[at]) for row in cells)) for at, name in enumerate(names)]
    left = max(map(columns, rows))
    lines = [[" " * left, *(pad_to_width(name, width) for name, width in zip(names, widths, strict=True))]]
    for name, row in zip(rows, cells, strict=True):
        lines.append([pad_to_width(name, left), *(cell.ljust(width) for cell, width in zip(row, widths, strict=True))])
    return "\n".join(" ".join(line).rstrip() for line in lines)
