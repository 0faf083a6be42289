"""Figures of attention as lists of marks with positions; `svg.py` writes them as SVG, `plots.py` as PNG or PDF.

    heatmap     one head: queries (rows) x keys (columns)                        as in Bahdanau et al., 2015
    head_grid   thumbnails of all heads of a kind: layers (rows) x heads (columns)
    lines       one head: two columns of tokens, lines from queries to keys, opacity by weight
    words       a token in every cell, for the logit lens: layers (rows) x positions (columns)

Lengths are pixels, y grows downward. Colors are scaled to `vmax`: 1 for weights, the largest value of the matrix for norms and
rollout. Diverging palettes (`signed`) are red below zero and blue above.

    side_by_side    figures from left to right
    stack           figures from top to bottom
    add_caption     a figure with lines of text below it

Figures with axes are in `charts.py`, those of all heads in `head_figures.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from heedful.inspection.drawing.text_heatmap import columns, printable_token, wrap_text

Anchor = Literal["start", "middle", "end"]
Palette = Literal["blue", "gray", "signed", "importance", "cyclic"]

TEXT = 12.0  # font size of tokens
SMALL = 11.0  # font size of annotations
EDGE = 24.0
MIN_CAPTION_WIDTH = 440.0  # pixels
MAX_ROW_WIDTH = 1200.0  # pixels
DARK = 0.5  # share of vmax from which text is white
PALETTES: dict[str, list[tuple[int, int, int]]] = {
    "blue": [(245, 248, 252), (197, 216, 238), (112, 161, 210), (36, 98, 168), (9, 40, 92)],
    "gray": [(255, 255, 255), (0, 0, 0)],
    "signed": [(140, 28, 19), (232, 150, 122), (250, 250, 250), (112, 161, 210), (9, 40, 92)],
    "importance": [
        (127, 47, 4),
        (224, 123, 36),
        (251, 211, 168),
        (255, 255, 255),
        (197, 216, 238),
        (92, 148, 204),
        (11, 52, 110),
    ],
    "cyclic": [(226, 217, 226), (120, 159, 196), (94, 67, 165), (47, 20, 54), (142, 46, 82), (199, 143, 118), (226, 217, 226)],
}
DIVERGING = ("signed", "importance")  # palettes for values from -1 to 1
INK, QUIET, ACCENT, FAINT = "#1c2430", "#5b6675", "#1f5fa8", "#e0e3e8"  # replaced by the colors of the page in `svg.inline`
INSIDE = "#1b2733", "#ffffff"  # text colors on light and dark cells
# of labels, as in the studio: white text is readable on each
LABELS = ("#2f66c2", "#b0590f", "#23784a", "#8d3fa3", "#a8324a", "#556f14", "#0b727c", "#7a5c2a")


class Heatmap(NamedTuple):
    """A matrix of colored cells."""

    x: float
    y: float
    width: float
    height: float
    values: Tensor  # (rows, columns)
    vmax: float  # value of the last color
    palette: Palette
    names: tuple[Sequence[str], Sequence[str]] | None = None  # of rows and columns, for tooltips; None: a thumbnail
    separator: str = " → "  # between the two names in tooltips


class Label(NamedTuple):
    x: float
    y: float  # vertical center
    text: str
    size: float = TEXT
    anchor: Anchor = "start"
    rotation: float = 0.0  # degrees counterclockwise
    color: str = INK


class TokenCell(NamedTuple):
    """A token in a cell."""

    text: str
    share: float  # 0 to 1, color of the cell
    marked: bool = False  # draw a dot


class Line(NamedTuple):
    start: tuple[float, float]
    end: tuple[float, float]
    strength: float  # 0 to 1
    tip: str


class Polyline(NamedTuple):
    """Straight segments between points."""

    points: Sequence[tuple[float, float]]
    color: str = ACCENT
    width: float = 1.8
    dashed: bool = False


class Area(NamedTuple):
    """A filled polygon."""

    points: Sequence[tuple[float, float]]
    color: str = ACCENT
    opacity: float = 0.2
    tip: str = ""  # tooltip; empty: none


class Picture(NamedTuple):
    """An image."""

    x: float
    y: float
    width: float
    height: float
    pixels: Tensor  # (height, width, 1 or 3), 0 to 255
    tip: str


Mark = Heatmap | Label | Line | Polyline | Area | Picture


class Figure(NamedTuple):
    title: str
    width: float
    height: float
    marks: list[Mark]


def heatmap(
    values: Tensor, rows: Sequence[str], names: Sequence[str], title: str, vmax: float = 1.0, palette: Palette = "blue"
) -> Figure:
    """Return a heatmap of values (rows, columns) with the names of rows and columns."""
    rows, names = [printable_token(name) for name in rows], [printable_token(name) for name in names]
    cell = 26.0 if max(len(rows), len(names)) <= 24 else 16.0
    left = EDGE + max(map(text_width, rows), default=0) + 8
    top = 2 * EDGE + 22 + 0.87 * max(map(text_width, names), default=0)
    width, height = cell * len(names), cell * len(rows)
    marks: list[Mark] = [Label(EDGE, EDGE, title, 15)]
    marks.append(Heatmap(left, top, width, height, values, vmax, palette, (rows, names)))
    marks += [Label(left - 8, top + cell * (at + 0.5), name, anchor="end") for at, name in enumerate(rows)]
    marks += [Label(left + cell * (at + 0.5), top - 8, name, rotation=60) for at, name in enumerate(names)]
    lean = 0.5 * text_width(names[-1]) if names else 0.0  # overhang of the last rotated name
    full = max(left + width + max(lean, EDGE) + EDGE, 2 * EDGE + text_width(title, 15), left + 240)
    return Figure(title, full, top + height + 60, marks + color_scale(left, top + height + 22, vmax, palette))


def head_grid(layers: Sequence[tuple[int, Tensor]], title: str, *, relative: bool = False, merged: bool = False) -> Figure:
    """layers: number and weights (heads, query, key) of each. relative: scale each thumbnail to its own largest value, printed
    below it. merged: one matrix for all heads of a layer."""
    side = 96.0
    queries, keys = (max(maps.shape[axis] for _, maps in layers) for axis in (1, 2))
    height, width = side * min(1, queries / keys), side * min(1, keys / queries)
    left, top, gap = EDGE + 64, 2 * EDGE + 34, 12.0
    step = height + gap + (1.5 * SMALL if relative else 0)  # from layer to layer
    marks: list[Mark] = [Label(EDGE, EDGE, title, 15)]
    most_heads = max(len(maps) for _, maps in layers)
    marks += [
        Label(left + (width + gap) * head + width / 2, top - 14, name, SMALL, "middle", color=QUIET)
        for head, name in enumerate(["all heads"] if merged else [f"head {head}" for head in range(most_heads)])
    ]
    for row, (layer, maps) in enumerate(layers):
        y = top + step * row
        marks.append(Label(left - 12, y + height / 2, f"layer {layer}", SMALL, "end", color=QUIET))
        for head, values in enumerate(maps):
            vmax, x = max(float(values.max()), 1e-12) if relative else 1.0, left + (width + gap) * head
            marks.append(Heatmap(x, y, width, height, values, vmax, "blue"))
            if relative:
                marks.append(Label(x + width / 2, y + height + SMALL, f"to {vmax:.2g}", SMALL, "middle", color=QUIET))
    full = max(left + (width + gap) * most_heads + EDGE, 2 * EDGE + text_width(title, 15), left + 240)
    bottom = top + step * len(layers)
    return Figure(title, full, bottom + 56, marks + color_scale(left, bottom + 12, None if relative else 1.0, "blue"))


def lines(values: Tensor, rows: Sequence[str], names: Sequence[str], title: str, vmax: float = 1.0) -> Figure:
    """Return a line diagram of values (rows, columns): queries on the left, keys on the right."""
    rows, names = [printable_token(name) for name in rows], [printable_token(name) for name in names]
    step, top = 22.0, 2 * EDGE + 38
    left = EDGE + max(map(text_width, [*rows, "from"]), default=0)
    right = left + 220
    longest = max(len(rows), len(names))
    shift = [(longest - len(side)) * step / 2 for side in (rows, names)]  # both columns are centered

    def height(side: int, at: int) -> float:
        return top + shift[side] + step * (at + 0.5)

    marks: list[Mark] = [Label(EDGE, EDGE, title, 15)]
    marks += [Label(left, top - 14, "from", SMALL, "end", color=QUIET), Label(right, top - 14, "to", SMALL, color=QUIET)]
    for row, name in enumerate(rows):
        for column, value in enumerate(values[row].tolist()):
            if value >= 0.01 * vmax:  # invisible
                ends = (left + 8, height(0, row)), (right - 8, height(1, column))
                marks.append(Line(*ends, min(value / vmax, 1.0), f"{name} → {names[column]}: {value:.4f}"))
    marks += [Label(left, height(0, at), name, anchor="end") for at, name in enumerate(rows)]
    marks += [Label(right, height(1, at), name) for at, name in enumerate(names)]
    full = max(right + max(map(text_width, names), default=0) + EDGE, 2 * EDGE + text_width(title, 15))
    return Figure(title, full, top + step * longest + EDGE, marks)


def words(cells: Sequence[Sequence[TokenCell]], rows: Sequence[str], names: Sequence[str], title: str) -> Figure:
    """Return a grid of tokens, cells (rows, columns); columns that do not fit continue in a block below."""
    texts, names = [[printable_token(word.text) for word in row] for row in cells], [printable_token(name) for name in names]
    left, high, gap = EDGE + max(map(text_width, rows)) + 8, 26.0, 2.0
    widths = [max(text_width(text) for text in (name, *column)) + 20 for name, *column in zip(names, *texts, strict=True)]
    marks: list[Mark] = [Label(EDGE, EDGE, title, 15)]
    top, x, right = 2 * EDGE + 22, left, left
    for at, name in enumerate(names):
        if x > left and x + widths[at] > MAX_ROW_WIDTH:
            top, x = top + high * (len(rows) + 2), left
        if x == left:
            marks += [Label(left - 8, top + high * (row + 0.5), label, anchor="end") for row, label in enumerate(rows)]
        shares = torch.tensor([[row[at].share] for row in cells])
        marks.append(Heatmap(x, top, widths[at], high * len(rows), shares, 1.0, "blue", (rows, [name])))
        marks.append(Label(x + widths[at] / 2, top - 12, name, anchor="middle", color=QUIET))
        for row, word in enumerate(line[at] for line in cells):
            ink, middle = INSIDE[word.share > DARK], top + high * (row + 0.5)
            marks.append(Label(x + widths[at] / 2, middle, texts[row][at], anchor="middle", color=ink))
            marks += [Label(x + widths[at] - 8, middle - 7, "•", SMALL, "middle", color=ink)] * word.marked
        x += widths[at] + gap
        right = max(right, x)
    full, bottom = max(right + EDGE, 2 * EDGE + text_width(title, 15), left + 240), top + high * len(rows)
    return Figure(title, full, bottom + 60, marks + color_scale(left, bottom + 22, 1.0, "blue"))


def side_by_side(*figures: Figure) -> Figure:
    """Place figures from left to right."""
    marks: list[Mark] = []
    right = 0.0
    for figure in figures:
        marks += [translate_mark(mark, right) for mark in figure.marks]
        right += figure.width
    return Figure(", ".join(figure.title for figure in figures), right, max(figure.height for figure in figures), marks)


def stack(*figures: Figure) -> Figure:
    """Place figures from top to bottom."""
    marks: list[Mark] = []
    down = 0.0
    for figure in figures:
        marks += [translate_mark(mark, 0.0, down) for mark in figure.marks]
        down += figure.height
    return Figure(", ".join(figure.title for figure in figures), max(figure.width for figure in figures), down, marks)


def translate_mark(mark: Mark, right: float, down: float = 0.0) -> Mark:
    """Return the mark moved by (right, down)."""
    if isinstance(mark, Line):
        (x, y), (u, v) = mark.start, mark.end
        return mark._replace(start=(x + right, y + down), end=(u + right, v + down))
    if isinstance(mark, Polyline | Area):
        return mark._replace(points=[(x + right, y + down) for x, y in mark.points])
    return mark._replace(x=mark.x + right, y=mark.y + down)


def add_caption(figure: Figure, caption: Sequence[str]) -> Figure:
    """Return the figure with these texts below it, wrapped to its width."""
    width = max(figure.width, MIN_CAPTION_WIDTH)
    room = int((width - 2 * EDGE) / text_width("x", SMALL))
    lines = [line for text in caption for line in wrap_text(text, room)]
    step = 1.5 * SMALL
    below = [Label(EDGE, figure.height + step * (at + 0.5), line, SMALL, color=QUIET) for at, line in enumerate(lines)]
    return Figure(figure.title, width, figure.height + step * len(lines) + EDGE, [*figure.marks, *below])


def color_scale(x: float, y: float, vmax: float | None, palette: Palette) -> list[Mark]:
    """Return the color bar of a figure; vmax None: each thumbnail has its own scale."""
    least = -1 if palette in DIVERGING else 0
    ends = (f"{least * (vmax or 0):.3g}", f"{vmax:.3g}" if vmax is not None else "maximum of each head")
    return color_bar(x, y, ends, torch.linspace(least, 1, 32), palette)


def color_bar(x: float, y: float, ends: tuple[str, str], shares: Tensor, palette: Palette) -> list[Mark]:
    """Return a color bar of these shares (count,) between two labels."""
    begin = x + text_width(ends[0], SMALL) + 7
    return [
        Label(x, y + 6, ends[0], SMALL, color=QUIET),
        Heatmap(begin, y, 120, 12, shares[None], 1.0, palette),
        Label(begin + 126, y + 6, ends[1], SMALL, color=QUIET),
    ]


def text_width(text: str, size: float = TEXT) -> float:
    """Estimate the width of a text in pixels; East Asian wide characters count double."""
    return 0.62 * size * columns(text)


def color(share: float, palette: Palette) -> tuple[int, int, int]:
    """Return red, green, blue of a share from 0 to 1 (from -1 to 1 for diverging palettes); white for NaN."""
    if math.isnan(share):
        return 255, 255, 255
    if palette == "importance":
        share = signed_sqrt(share)
    stops, share = PALETTES[palette], (share + 1) / 2 if palette in DIVERGING else share
    at = min(max(share, 0.0), 1.0) * (len(stops) - 1)
    below = min(int(at), len(stops) - 2)
    red, green, blue = (round(a + (b - a) * (at - below)) for a, b in zip(stops[below], stops[below + 1], strict=True))
    return red, green, blue


def signed_sqrt(share: float) -> float:
    """Return the square root with the sign of the share, so that small values remain distinguishable."""
    return math.copysign(math.sqrt(abs(share)), share)
