"""Figures with axes.

line_chart       values at 0, 1, 2, …, or at given places
interval_chart   values with intervals, and what they are to be compared with
heatmap_chart    a matrix with numbered axes, one pixel per value
dials            angles as hands of circular dials, counterclockwise from the right
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.inspection.drawing.figure import (
    ACCENT,
    EDGE,
    FAINT,
    INK,
    QUIET,
    SMALL,
    Figure,
    Heatmap,
    Label,
    Mark,
    Palette,
    Polyline,
    color_bar,
    text_width,
)

TITLE = 14.0  # font size of titles
BESIDE, ABOVE, BELOW = 58.0, 54.0, 44.0  # space for labels around the axes
PALE_FROM = 0.25  # residual variance from which a hand is drawn pale


def line_chart(values: Sequence[float], title: str, across: str, up: str, places: Sequence[float] | None = None) -> Figure:
    """Return a line chart of values at 0, 1, 2, …, or at these places, in ascending order."""
    width, height = 260.0, 192.0
    at_places = places or range(len(values))
    first, last = at_places[0], at_places[-1]
    left, low, high = EDGE + BESIDE, min(values), max(values)
    margin = 0.08 * (high - low) or 1.0
    low, high = low - margin, high + margin

    def x(at: float) -> float:
        return left + width * (at - first) / ((last - first) or 1)

    def y(value: float) -> float:
        return ABOVE + height * (high - value) / (high - low)

    marks: list[Mark] = [Label(EDGE, EDGE, title, TITLE)]
    for at in ticks(first, last, integers=True):
        marks.append(Polyline([(x(at), ABOVE), (x(at), ABOVE + height)], FAINT, 1.0))
        marks.append(Label(x(at), ABOVE + height + 12, f"{at:g}", SMALL, "middle", color=QUIET))
    for value in ticks(low, high):
        marks.append(Polyline([(left, y(value)), (left + width, y(value))], FAINT, 1.0))
        marks.append(Label(left - 8, y(value), f"{value:g}", SMALL, "end", color=QUIET))
    marks.append(Polyline([(x(at), y(value)) for at, value in zip(at_places, values, strict=True)]))
    marks += axis_labels((left, ABOVE, width, height), across, up)
    return Figure(title, max(left + width, EDGE + 0.9 * text_width(title, TITLE)) + EDGE, ABOVE + height + BELOW, marks)


class Interval(NamedTuple):
    """A value with an interval, at a place."""

    at: float
    value: float
    low: float
    high: float


def interval_chart(
    points: Sequence[Interval],
    title: str,
    axes: tuple[str, str],
    lines: Mapping[str, float],
    others: Sequence[Interval] = (),
) -> Figure:
    """Return a chart of values with their intervals, and a dashed line where value and place are equal. axes: labels of the
    horizontal and the vertical axis; lines: named values, drawn as horizontal lines and named to the right of them; others: a
    second, dark curve, of another run."""
    width, height, left, top = 360.0, 280.0, EDGE + BESIDE, ABOVE + 22  # the legend is below the title
    names = [("this run" if others else axes[1], ACCENT, False), *([("other run", INK, False)] if others else [])]
    both, places = [*points, *others], [point.at for point in points]
    low = min(*lines.values(), *(min(point.low, point.at) for point in both))
    high = max(*lines.values(), *(max(point.high, point.at) for point in both))
    margin = 0.06 * (high - low) or 1.0
    low, high = low - margin, high + margin
    first, last = min(places) - margin, max(places) + margin

    def x(at: float) -> float:
        return left + width * (at - first) / (last - first)

    def y(value: float) -> float:
        return top + height * (high - value) / (high - low)

    marks: list[Mark] = [Label(EDGE, EDGE, title, TITLE)]
    for at in ticks(first, last):
        marks.append(Polyline([(x(at), top), (x(at), top + height)], FAINT, 1.0))
        marks.append(Label(x(at), top + height + 12, f"{at:g}", SMALL, "middle", color=QUIET))
    for value in ticks(low, high):
        marks.append(Polyline([(left, y(value)), (left + width, y(value))], FAINT, 1.0))
        marks.append(Label(left - 8, y(value), f"{value:g}", SMALL, "end", color=QUIET))
    for value in lines.values():
        marks.append(Polyline([(left, y(value)), (left + width, y(value))], QUIET, 1.0))
    rows = spread([y(value) for value in lines.values()], 14.0)
    marks += [Label(left + width + 8, row, name, SMALL, color=QUIET) for name, row in zip(lines, rows, strict=True)]
    marks.append(Polyline([(x(at), y(at)) for at in (min(places), max(places))], QUIET, 1.2, dashed=True))
    for curve, color in [*([(others, INK)] if others else []), (points, ACCENT)]:
        marks.append(Polyline([(x(point.at), y(point.value)) for point in curve], color))
        marks += [Polyline([(x(point.at), y(end)) for end in (point.low, point.high)], color, 3.0) for point in curve]
    begin = left
    for name, color, dashed in [*names, (f"equal to the {axes[0]}", QUIET, True)]:
        text = name if dashed else f"{name}, 95% interval"
        marks.append(Polyline([(begin, top - 13), (begin + 22, top - 13)], color, 1.2 if dashed else 1.8, dashed))
        marks += [Polyline([(begin + 11, top - 18), (begin + 11, top - 8)], color, 3.0)] * (not dashed)
        marks.append(Label(begin + 28, top - 13, text, SMALL, color=QUIET))
        begin += 28 + 0.9 * text_width(text, SMALL) + 16
    right = left + width + 8 + max(0.9 * text_width(name, SMALL) for name in lines)
    marks += axis_labels((left, top, width, height), *axes)
    return Figure(title, max(right, begin) + EDGE, top + height + BELOW, marks)


def spread(places: Sequence[float], least: float) -> list[float]:
    """The places, moved down where they are less than `least` below the previous one."""
    moved: dict[int, float] = {}
    for at in sorted(range(len(places)), key=lambda at: places[at]):
        moved[at] = max(places[at], max(moved.values(), default=-math.inf) + least)
    return [moved[at] for at in range(len(places))]


def heatmap_chart(
    values: Tensor,
    title: str,
    palette: Palette,
    *,
    vmax: float,
    across: tuple[str, int],
    down: tuple[str, Sequence[str]],
    ends: tuple[str, str] | None,
) -> Figure:
    """Return a heatmap of values (rows, columns). across: name of the x-axis and number of the first column; down: name of the
    y-axis and names of the rows; ends: labels of the color bar, None for no color bar."""
    rows, columns = values.shape
    left, width = EDGE + BESIDE, 256.0
    height = max(min(rows * 18.0, 192.0), 3.0 * rows)
    marks: list[Mark] = [Label(EDGE, EDGE, title, TITLE), Heatmap(left, ABOVE, width, height, values, vmax, palette)]
    first = across[1]
    for number in ticks(first, first + columns - 1, integers=True):
        x = left + width * (number - first + 0.5) / columns
        marks.append(Label(x, ABOVE + height + 12, f"{number:g}", SMALL, "middle", color=QUIET))
    step = math.ceil(rows / 6)
    marks += [
        Label(left - 8, ABOVE + height * (row + 0.5) / rows, down[1][row], SMALL, "end", color=QUIET)
        for row in range(0, rows, step)
        if down[1][row]
    ]
    marks += axis_labels((left, ABOVE, width, height), across[0], down[0])
    bottom = ABOVE + height + BELOW
    if ends is not None:
        least = 0.0 if palette == "cyclic" else -1.0
        marks += color_bar(left, bottom, ends, torch.linspace(least, 1, 48), palette)
        bottom += 24
    return Figure(title, max(left + width, EDGE + 0.9 * text_width(title, TITLE)) + EDGE, bottom, marks)


def axis_labels(box: tuple[float, float, float, float], across: str, up: str) -> list[Mark]:
    """box: left, top, width, height of the axes."""
    left, top, width, height = box
    return [
        Label(left + width / 2, top + height + 30, across, SMALL, "middle", color=QUIET),
        Label(EDGE + 6, top + height / 2, up, SMALL, "middle", rotation=90, color=QUIET),
    ]


def dials(
    hands: Sequence[Sequence[tuple[float, float]]], title: str, rows: Sequence[str], names: Callable[[int], str]
) -> Figure:
    """Return one dial per pair (degrees, share of the variance that this rotation does not explain) in hands (rows, columns);
    a hand with a large residual is pale."""
    radius, step, high = 17.0, 52.0, 56.0
    left, top = EDGE + max(text_width(row, SMALL) for row in rows) + 10, ABOVE + 6
    count = max(map(len, hands))
    marks: list[Mark] = [Label(EDGE, EDGE, title, TITLE)]
    marks += [Label(left + step * (at + 0.5), top - 12, names(at), SMALL, "middle", color=QUIET) for at in range(count)]
    for row, (name, row_hands) in enumerate(zip(rows, hands, strict=True)):
        y = top + high * row + radius + 4
        marks.append(Label(left - 10, y, name, SMALL, "end", color=QUIET))
        for at, (degrees, residual) in enumerate(row_hands):
            x = left + step * (at + 0.5)
            marks.append(Polyline([point_on_circle(x, y, radius, 10 * part) for part in range(37)], QUIET, 0.8))
            marks.append(Polyline([point_on_circle(x, y, radius * size, 0) for size in (0.75, 1.0)], QUIET, 0.8))
            hand = [(x, y), point_on_circle(x, y, radius * 0.9, degrees)]
            marks.append(Polyline(hand, width=2.4) if residual < PALE_FROM else Polyline(hand, FAINT, 2.4))
            marks.append(Label(x, y + radius + 10, f"{degrees:.1f}°", SMALL, "middle"))
    width = max(left + step * count, EDGE + 0.9 * text_width(title, TITLE)) + EDGE
    return Figure(title, width, top + high * len(rows) + 12, marks)


def point_on_circle(x: float, y: float, radius: float, degrees: float) -> tuple[float, float]:
    """Return a point on a circle; 0 degrees is at the right, angles grow counterclockwise."""
    return x + radius * math.cos(math.radians(degrees)), y - radius * math.sin(math.radians(degrees))


def ticks(low: float, high: float, *, integers: bool = False, count: int = 7) -> list[float]:
    """Return about `count` round numbers from low to high: multiples of 1, 2 or 5 times a power of ten."""
    if high <= low:
        return [low]
    power = 10.0 ** math.floor(math.log10((high - low) / count))
    step = next(size * power for size in (1, 2, 5, 10) if (high - low) / (size * power) < count)
    step = max(step, 1.0) if integers else step
    return [round(at * step, 10) for at in range(math.ceil(low / step), math.floor(high / step) + 1)]
