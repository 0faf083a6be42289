"""Plots of benchmarks: panels side by side, every line labeled at its end.

A cross marks a line that ended at a limit. The palette is color-blind safe, and strokes differ within a color.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

INK, PALE, GRID = "#222222", "#6f6f6f", "#e9e9e9"
BLUE, ORANGE, GREEN, VIOLET = "#1f5fa8", "#c8571b", "#2c8a57", "#7a4b9e"
STROKES: list[Any] = ["-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5))]
LABEL: dict[str, Any] = {"fontsize": 9.5, "va": "center"}
LABEL_GAP = 0.062  # between two labels, as a fraction of the axis
LEADER: dict[str, Any] = {"arrowstyle": "-", "linewidth": 0.6, "alpha": 0.6, "shrinkA": 0, "shrinkB": 3, "relpos": (0, 0.5)}


class Line(NamedTuple):
    label: str
    points: Sequence[tuple[float, float]]
    color: str = BLUE
    stroke: Any = "-"
    stopped: bool = False


def assign_strokes(lines: Iterable[Line]) -> list[Line]:
    """Assign a different stroke to each line of one color."""
    results: list[Line] = []
    for line in lines:
        before = sum(other.color == line.color for other in results)
        results.append(line._replace(stroke=STROKES[before % len(STROKES)]))
    return results


def canvas(title: str, note: str, results: dict[str, Any]) -> tuple[Figure, Sequence[Axes]]:
    """Two panels with logarithmic axes, below a title and a note on the machine."""
    figure = Figure(figsize=(12.5, 5.4))
    panels = figure.subplots(1, 2, gridspec_kw={"left": 0.06, "right": 0.855, "top": 0.79, "bottom": 0.12, "wspace": 0.62})
    for axes in panels:
        axes.set(xscale="log", yscale="log")
    figure.text(0.02, 0.945, title, fontsize=13.5, fontweight="bold", color=INK, va="center")
    where = f"{results['machine']}, torch {results['torch']}, {results['date']}"
    figure.text(0.02, 0.893, f"{note}  ·  {where}", fontsize=8.5, color=PALE, va="center")
    return figure, panels


def plot(axes: Axes, lines: Sequence[Line], heights: tuple[float, float] | None = None) -> None:
    """Draw the lines, within the given y limits, and their labels in a column to the right: each at the height of the end of
    its line, or as close as space permits."""
    lines = [line for line in lines if line.points]
    if not lines:
        return
    for line in lines:
        axes.plot(
            *zip(*line.points, strict=True), color=line.color, linestyle=line.stroke, linewidth=1.8, marker="o", markersize=3
        )
        axes.plot(*line.points[-1], marker="x" if line.stopped else "o", color=line.color, markersize=7 if line.stopped else 4)
    axes.margins(x=0.03, y=0.08)
    axes.autoscale_view()
    if heights is not None:
        axes.set_ylim(*heights)
    to_axes = (axes.transScale + axes.transLimits).transform  # data -> axes fraction
    edge = max(line.points[-1][0] for line in lines)
    labeled = sorted((line for line in lines if line.label), key=lambda line: float(to_axes(line.points[-1])[1]))
    outside = [line for line in labeled if line.points[-1][0] == edge]
    levels = clamp(1.02, spread_labels([float(to_axes(line.points[-1])[1]) for line in outside], LABEL_GAP), LABEL_GAP)
    for line, height in zip(outside, levels, strict=True):
        leader = LEADER | {"color": line.color}
        where: dict[str, Any] = {"xytext": (1.05, height), "textcoords": "axes fraction", "arrowprops": leader}
        axes.annotate(line.label, line.points[-1], color=line.color, annotation_clip=False, **LABEL, **where)
    for line in labeled:
        if line.points[-1][0] < edge:  # it ended at a limit: its label is above its end
            where = {"xytext": (4, 11), "textcoords": "offset points", "ha": "right"}
            axes.annotate(line.label, line.points[-1], color=line.color, **LABEL, **where)


def spread_labels(heights: Sequence[float], gap: float) -> list[float]:
    """Move sorted heights as little as needed to be at least `gap` apart: heights that are too close form a group around
    their mean, and groups that then overlap are merged."""
    groups: list[list[float]] = []
    for height in heights:
        groups.append([height])
        while len(groups) > 1 and bottom(groups[-1], gap) - top(groups[-2], gap) < gap:
            last = groups.pop()
            groups[-1] += last
    return [bottom(group, gap) + gap * index for group in groups for index in range(len(group))]


def clamp(ceiling: float, heights: Sequence[float], gap: float) -> list[float]:
    """Move sorted heights below the ceiling, still at least `gap` apart."""
    count = len(heights)
    return [min(height, ceiling - gap * (count - 1 - index)) for index, height in enumerate(heights)]


def bottom(group: Sequence[float], gap: float) -> float:
    return sum(group) / len(group) - gap * (len(group) - 1) / 2


def top(group: Sequence[float], gap: float) -> float:
    return bottom(group, gap) + gap * (len(group) - 1)


def finish(axes: Axes, heading: str, text: Callable[[float], str], below: str, ticks: Sequence[float]) -> None:
    axes.set_title(heading, loc="left", fontsize=10.5, color=INK, pad=8)
    axes.set_xlabel(below, fontsize=9.5, color=PALE)
    axes.xaxis.set_major_locator(FixedLocator(list(ticks)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: count_text(value)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))
    if axes.get_yscale() == "log":
        low, high = axes.get_ylim()
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0,) if high / low > 100 else (1.0, 2.0, 5.0)))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelsize=9, labelcolor=PALE)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(PALE)


def powers_within(values: Sequence[float], base: int) -> list[float]:
    """Powers of the base between the smallest and largest value; for base 4, the largest value divided by powers of 4."""
    last = max(values)
    ticks = [last / base**k for k in range(20)] if base == 4 else [float(base**k) for k in range(20)]
    return [tick for tick in ticks if min(values) * 0.9 <= tick <= last * 1.1]


def count_text(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            shown = value / (1e3 if unit == "k" else size)
            return f"{shown:.3g}{unit}"
    return f"{value:,.0f}"


def seconds_text(value: float) -> str:
    return f"{value:g} s" if value >= 1 else f"{value * 1e3:g} ms" if value >= 1e-3 else f"{value * 1e6:g} µs"


def bytes_text(value: float) -> str:
    if value == 0:
        return "0"
    return f"{value / 1e9:g} GB" if value >= 1e9 else f"{value / 1e6:g} MB" if value >= 1e6 else f"{value / 1e3:g} kB"
