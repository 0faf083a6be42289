"""All heads of a model in one figure: a grid of layers and heads for each kind of attention.

Blue cells: the loss grows when the head is ablated; orange cells: the loss falls. Labels name the roles of a head.

    shade = sign(x) sqrt(|x| / largest |x|)        so that small values remain distinguishable
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import torch

from heedful.inspection.drawing.figure import (
    EDGE,
    INSIDE,
    QUIET,
    SMALL,
    TEXT,
    Figure,
    Heatmap,
    Label,
    Mark,
    add_caption,
    color_bar,
    side_by_side,
    signed_sqrt,
    stack,
    text_width,
)

WIDE, HIGH = 66.0, 68.0  # size of a cell
TITLE = "Roles and importance of the heads"
LINE = 14.0  # line height of labels
DARK = 0.62  # share of the darkest color from which text is white


class Cell(NamedTuple):
    kind: str
    layer: int
    head: int
    importance: float
    marks: Sequence[str]  # roles; empty: none detected


class Legend(NamedTuple):
    """Texts below the grids."""

    unit: str  # of importance
    shades: str
    marks: str


def grids(cells: Sequence[Cell], unit: str) -> list[Figure]:
    """Return one grid per kind of attention with a common color scale; the first has the color bar."""
    largest_size = max(1e-9, *(abs(cell.importance) for cell in cells))
    kinds = list(dict.fromkeys(cell.kind for cell in cells))
    figures = [grid([cell for cell in cells if cell.kind == kind], largest_size) for kind in kinds]
    lowest, highest = min(0.0, *(cell.importance for cell in cells)), max(0.0, *(cell.importance for cell in cells))
    shares = torch.linspace(lowest / largest_size, highest / largest_size, 64)
    scale = color_bar(
        EDGE, figures[0].height, (format_importance(lowest), f"{format_importance(highest)} {unit}"), shares, "importance"
    )
    right = max(mark.x + text_width(mark.text, mark.size) for mark in scale if isinstance(mark, Label))
    first = Figure(figures[0].title, max(figures[0].width, right + EDGE), figures[0].height + 28, [*figures[0].marks, *scale])
    return [first, *figures[1:]]


def head_figure(cells: Sequence[Cell], legend: Legend) -> Figure:
    """Return all grids side by side, below a title, with the legend as caption."""
    caption = [text for text in (f"{legend.shades} · square-root scale", legend.marks) if text]
    row = side_by_side(*grids(cells, legend.unit))
    heading = Figure(TITLE, 2 * EDGE + text_width(TITLE, 15), EDGE + 12, [Label(EDGE, EDGE, TITLE, 15)])
    return add_caption(stack(heading, row), caption)._replace(title=f"all heads: {row.title}")


def grid(cells: Sequence[Cell], largest_size: float) -> Figure:
    """Return the grid of one kind of attention: one row per layer with heads, the first layer on top."""
    kind, layers = cells[0].kind, sorted({cell.layer for cell in cells})
    heads = max(cell.head for cell in cells) + 1
    left, top = EDGE + 54, 2 * EDGE + 16
    values = torch.full((len(layers), heads), math.nan)
    marks: list[Mark] = [Label(EDGE, EDGE, f"attention: {kind}", 13)]
    for cell in cells:
        row, x = layers.index(cell.layer), left + WIDE * (cell.head + 0.5)
        values[row, cell.head] = cell.importance
        text_color = INSIDE[abs(signed_sqrt(cell.importance / largest_size)) > DARK]
        labels = [*cell.marks[:2], *["…"] * (len(cell.marks) > 2)]
        y = top + HIGH * row
        middle = y + 0.36 * HIGH - LINE * (len(labels) - 1) / 2
        marks += [
            Label(x, middle + LINE * at, text, min(TEXT, 0.95 * WIDE * TEXT / text_width(text)), "middle", color=text_color)
            for at, text in enumerate(labels)
        ]
        marks.append(Label(x, y + HIGH - 15, format_importance(cell.importance), SMALL, "middle", color=text_color))
    names = [f"{kind} · layer {layer}" for layer in layers], [f"head {head}" for head in range(heads)]
    width, height = WIDE * heads, HIGH * len(layers)
    heatmap = Heatmap(left, top, width, height, values, largest_size, "importance", names, " · ")
    marks += [
        Label(left - 8, top + HIGH * (row + 0.5), f"layer {layer}", SMALL, "end", color=QUIET)
        for row, layer in enumerate(layers)
    ]
    marks += [
        Label(left + WIDE * (head + 0.5), top - 12, name, SMALL, "middle", color=QUIET) for head, name in enumerate(names[1])
    ]
    return Figure(kind, left + width + EDGE, top + height + 20, [heatmap, *marks])


def format_importance(importance: float) -> str:
    """Format with three decimals and no leading 0: .123, -.010, 1.234; values that round to zero have no sign."""
    return re.sub(r"^(-?)0\.", r"\1.", f"{round(importance, 3) + 0.0:.3f}")
