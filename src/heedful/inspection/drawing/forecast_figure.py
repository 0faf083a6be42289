"""Curves of a forecast: the end of the history, the forecast with its prediction intervals, the true values, baselines.

A panel for each variable, with an axis of its own; a pair of quantiles is a band, the outer ones paler.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from heedful.inspection.drawing.charts import ticks
from heedful.inspection.drawing.figure import (
    ACCENT,
    EDGE,
    FAINT,
    INK,
    QUIET,
    SMALL,
    Area,
    Figure,
    Label,
    Mark,
    Polyline,
    text_width,
)

OCHRE, GREEN = "#b3701a", "#3b7d5c"
BASELINE_COLORS = (QUIET, OCHRE, GREEN)
WIDTH, HEIGHT, LEFT, TITLE, BELOW, GAP = 520.0, 150.0, 58.0, 26.0, 30.0, 14.0  # of a panel and around it
ONE_COLUMN = 3  # panels that are below each other; more are in two columns
Values = Sequence[float]


class Curve(NamedTuple):
    """The values of one variable; all but the history have one for each step of the horizon."""

    name: str
    history: Values
    forecast: Values
    bands: Sequence[tuple[Values, Values]]  # lower and upper ends, the widest first
    baselines: Mapping[str, Values]
    truth: Values  # empty: unknown


def forecast_figure(curves: Sequence[Curve], times: Sequence[str], title: str, interval: str) -> Figure:
    """times: of all steps of the history and the horizon; interval: name of the bands, in the legend."""
    columns = 1 if len(curves) <= ONE_COLUMN else 2
    wide, high = LEFT + WIDTH + GAP, TITLE + HEIGHT + BELOW + GAP
    marks: list[Mark] = [Label(EDGE, EDGE, title, 15)]
    entries = legend(curves[0], interval, 2 * EDGE + wide * columns, EDGE + 30)
    marks += entries
    top = max(mark.y for mark in entries if isinstance(mark, Label)) + 18
    for at, curve in enumerate(curves):
        row, column = divmod(at, columns)
        marks += panel(curve, times, EDGE + wide * column + LEFT, top + high * row + TITLE)
    rows = math.ceil(len(curves) / columns)
    return Figure(title, 2 * EDGE + wide * columns, top + high * rows, marks)


def legend(curve: Curve, interval: str, width: float, y: float) -> list[Mark]:
    """A short piece of each curve, and its name; a new line where the next one does not fit into the width."""
    observed = "history and true values" if curve.truth else "history"
    entries = [(observed, INK, False), ("forecast", ACCENT, False)]
    entries += [(name, color, True) for name, color in zip(curve.baselines, BASELINE_COLORS, strict=False)]
    entries += [(interval, "", False)] if curve.bands else []
    marks: list[Mark] = []
    x = EDGE
    for name, color, dashed in entries:
        end = x + 30 + 0.85 * text_width(name, SMALL)
        if x > EDGE and end > width - EDGE:
            x, y, end = EDGE, y + 18, EDGE + end - x
        if color:
            marks.append(Polyline([(x, y), (x + 24, y)], color, 1.8 if not dashed else 1.2, dashed))
        else:
            marks.append(Area([(x, y - 6), (x + 24, y - 6), (x + 24, y + 6), (x, y + 6)]))
        marks.append(Label(x + 30, y, name, SMALL, color=QUIET))
        x = end + 18
    return marks


def panel(curve: Curve, times: Sequence[str], left: float, top: float) -> list[Mark]:
    every = [*curve.history, *curve.forecast, *curve.truth, *(value for band in curve.bands for end in band for value in end)]
    every += [value for values in curve.baselines.values() for value in values]
    low, high = min(every), max(every)
    margin = 0.06 * (high - low) or 1.0
    low, high = low - margin, high + margin
    past, count = len(curve.history), len(times)

    def point(at: float, value: float) -> tuple[float, float]:
        return left + WIDTH * at / max(count - 1, 1), top + HEIGHT * (high - value) / (high - low)

    def line(values: Values, color: str, width: float, *, dashed: bool = False, first: int = past - 1) -> Polyline:
        """values from the step `first`; those of the horizon begin at the last value of the history."""
        joined = values if first == 0 else [curve.history[-1], *values]
        return Polyline([point(first + at, value) for at, value in enumerate(joined)], color, width, dashed)

    marks: list[Mark] = [Label(left, top - 12, curve.name, 13)]
    for value in ticks(low, high, count=5):
        y = point(0, value)[1]
        marks.append(Polyline([(left, y), (left + WIDTH, y)], FAINT, 1.0))
        marks.append(Label(left - 8, y, f"{value:g}", SMALL, "end", color=QUIET))
    for at in time_ticks(count):
        x = point(at, low)[0]
        marks.append(Polyline([(x, top + HEIGHT), (x, top + HEIGHT + 4)], QUIET, 1.0))
        marks.append(Label(x, top + HEIGHT + 14, short_time(times, at), SMALL, "middle", color=QUIET))
    now = point(past - 1, low)[0]
    marks.append(Polyline([(now, top), (now, top + HEIGHT)], QUIET, 1.0))
    for lower, upper in curve.bands:
        ends = [point(past + at, value) for at, value in enumerate(lower)]
        back = [point(past + at, value) for at, value in enumerate(upper)][::-1]
        marks.append(Area([point(past - 1, curve.history[-1]), *ends, *back], opacity=0.2))
    for values, color in zip(curve.baselines.values(), BASELINE_COLORS, strict=False):
        marks.append(line(values, color, 1.2, dashed=True))
    marks.append(line(curve.history, INK, 1.4, first=0))
    if curve.truth:
        marks.append(line(curve.truth, INK, 1.4))
    return [*marks, line(curve.forecast, ACCENT, 2.2)]


def time_ticks(count: int) -> list[int]:
    """About five steps, equally far apart, not at the very ends."""
    step = max(round(count / 5), 1)
    return list(range(step // 2, count, step))


def short_time(times: Sequence[str], at: int) -> str:
    """The time of a step: without the clock where all ticks are on different days, else without the year."""
    shown = [times[one] for one in time_ticks(len(times))]
    date = times[at][:10]
    if len(times[at]) <= 10 or len({time[:10] for time in shown}) == len(shown):
        return date
    return times[at][5:16].replace("T", " ")
