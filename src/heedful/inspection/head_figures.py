"""All heads of a model in one picture: a grid of layers and heads for each kind of attention.

The darker a blue cell, the more is lost without the head; orange ones do harm. A mark says what the head does.

    shade = sign(x) sqrt(|x| / largest |x|)        so that small ones differ, too
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import torch

from heedful.inspection.figure import (
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
    text_width,
)

WIDE, HIGH = 66.0, 60.0  # of a cell
LINE = 14.0  # from mark to mark
DARK = 0.62  # of the darkest; from here on writing is white


class Cell(NamedTuple):
    kind: str
    layer: int
    head: int
    importance: float
    marks: Sequence[str]  # what it does, a word each; none: nothing known


class Legend(NamedTuple):
    """What stands below the grids, in words."""

    unit: str  # of importance
    shades: str
    marks: str


def grids(cells: Sequence[Cell], unit: str) -> list[Figure]:
    """One for each kind, all with the same shades, which the first one explains."""
    farthest = max(1e-9, *(abs(cell.importance) for cell in cells))
    kinds = list(dict.fromkeys(cell.kind for cell in cells))
    made = [grid([cell for cell in cells if cell.kind == kind], farthest) for kind in kinds]
    least, largest = min(0.0, *(cell.importance for cell in cells)), max(0.0, *(cell.importance for cell in cells))
    shares = torch.linspace(least / farthest, largest / farthest, 64)
    scale = color_bar(EDGE, made[0].height, (figure(least), f"{figure(largest)} {unit}"), shares, "importance")
    right = max(mark.x + text_width(mark.text, mark.size) for mark in scale if isinstance(mark, Label))
    first = Figure(made[0].title, max(made[0].width, right + EDGE), made[0].height + 28, [*made[0].marks, *scale])
    return [first, *made[1:]]


def head_figure(cells: Sequence[Cell], meaning: Legend) -> Figure:
    """All of them side by side, and what they say below."""
    told = [text for text in (f"{meaning.shades} · square-root scale", meaning.marks) if text]
    made = add_caption(side_by_side(*grids(cells, meaning.unit)), told)
    return made._replace(title=f"all heads: {made.title}")


def grid(cells: Sequence[Cell], farthest: float) -> Figure:
    """The heads of one kind: a row for each layer that has some, the first one on top, as on walls and pages."""
    kind, layers = cells[0].kind, sorted({cell.layer for cell in cells})
    heads = max(cell.head for cell in cells) + 1
    left, top = EDGE + 54, 2 * EDGE + 16
    values = torch.full((len(layers), heads), math.nan)
    marks: list[Mark] = [Label(EDGE, EDGE, kind, 15)]
    for cell in cells:
        row, x = layers.index(cell.layer), left + WIDE * (cell.head + 0.5)
        values[row, cell.head] = cell.importance
        ink = INSIDE[abs(signed_sqrt(cell.importance / farthest)) > DARK]
        said = [*cell.marks[:2], *["…"] * (len(cell.marks) > 2)]
        y = top + HIGH * row
        middle = y + 0.4 * HIGH - LINE * (len(said) - 1) / 2
        marks += [
            Label(x, middle + LINE * at, text, min(TEXT, 0.95 * WIDE * TEXT / text_width(text)), "middle", color=ink)
            for at, text in enumerate(said)
        ]
        marks.append(Label(x, y + HIGH - 10, figure(cell.importance), SMALL, "middle", color=ink))
    names = [f"{kind} · layer {layer}" for layer in layers], [f"head {head}" for head in range(heads)]
    width, height = WIDE * heads, HIGH * len(layers)
    shades = Heatmap(left, top, width, height, values, farthest, "importance", names, " · ")
    marks += [
        Label(left - 8, top + HIGH * (row + 0.5), f"layer {layer}", SMALL, "end", color=QUIET)
        for row, layer in enumerate(layers)
    ]
    marks += [
        Label(left + WIDE * (head + 0.5), top - 12, name, SMALL, "middle", color=QUIET) for head, name in enumerate(names[1])
    ]
    return Figure(kind, left + width + EDGE, top + height + 20, [shades, *marks])


def figure(importance: float) -> str:
    """Three decimals, no 0 before the point: .123, -.010, 1.234; what rounds to nothing is .000, whatever its sign."""
    return re.sub(r"^(-?)0\.", r"\1.", f"{round(importance, 3) + 0.0:.3f}")
