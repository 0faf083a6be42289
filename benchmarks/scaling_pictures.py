"""The pictures of scaling.py: time beside memory, every line named where it ends, all of it from the JSON.

Colour tells the family (attention, recurrence, convolution), the stroke its members; a cross ends a line that a limit stopped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

INK, PALE, GRID = "#222222", "#6f6f6f", "#e9e9e9"
BLUE, ORANGE, GREEN, VIOLET = "#1f5fa8", "#c8571b", "#2c8a57", "#7a4b9e"
FAMILIES = {"n^2 d": BLUE, "r n d": VIOLET, "n d^2": ORANGE, "k n d^2": GREEN}  # by what a layer costs
STROKES: list[Any] = ["-", (0, (4, 1.5)), (0, (1, 1.2))]
LABEL: dict[str, Any] = {"fontsize": 9.5, "va": "center"}
LABEL_GAP = 0.062  # between two names, as a part of the axis
LEADER: dict[str, Any] = {"arrowstyle": "-", "linewidth": 0.6, "alpha": 0.6, "shrinkA": 0, "shrinkB": 3, "relpos": (0, 0.5)}


class Line(NamedTuple):
    label: str
    points: Sequence[tuple[float, float]]
    colour: str = BLUE
    stroke: Any = "-"
    stopped: bool = False


def draw(found: dict[str, Any], folder: Path) -> Iterator[Path]:
    """One PNG for each part that was measured."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, drawing in DRAWINGS.items():
        if part in found:
            path = folder / f"scaling-{part}.png"
            drawing(found[part]).savefig(path, dpi=150, facecolor="white")
            yield path


def draw_length(found: dict[str, Any]) -> Figure:
    kinds = found["kinds"]
    steep = [kind["exponent"]["seconds"] for kind in kinds.values() if kind["expected_exponent"] > 1.5]
    flat = [kind["exponent"]["seconds"] for kind in kinds.values() if kind["expected_exponent"] < 1.5]
    title = (
        f"Attention over all tokens takes time as {spread_of(steep)}; "
        f"windows, recurrences and convolutions as {spread_of(flat)}"
    )
    layer = found["layer"]
    note = (
        f"one causal layer, dim {layer['dim']}, {layer['heads']} heads, window {layer['window']}, kernel {layer['kernel']}, "
        f"{rows_of(found['rows'])}; exponents from the last three points"
    )
    figure, (left, right) = canvas(title, note, found)
    for axes, quantity in ((left, "seconds"), (right, "bytes")):
        lines, used = [], dict.fromkeys([*FAMILIES.values(), PALE], 0)
        for name, kind in kinds.items():
            colour = FAMILIES.get(kind["cost"], PALE)
            stroke = STROKES[used[colour] % len(STROKES)]
            lines.append(line_of(kind, quantity, "n", name)._replace(colour=colour, stroke=stroke))
            used[colour] += 1
        plot(axes, lines)
    lengths = [point["value"] for kind in kinds.values() for point in kind["points"]]
    finish(left, "time of a step", seconds_text, "tokens in the sequence, n", ticks=powers_within(lengths, 4))
    finish(right, "peak memory of a step", bytes_text, "tokens in the sequence, n", ticks=powers_within(lengths, 4))
    return figure


def draw_size(found: dict[str, Any]) -> Figure:
    points = found["points"]
    growth = {name: points[-1][name] / points[0][name] for name in ("value", "seconds")}
    title = f"{growth['value']:,.0f} times the weights take {growth['seconds']:,.0f} times the time"
    note = (
        f"Transformer, {rows_of(found['rows'])} x {found['time']} tokens a side, vocabulary {found['vocab']:,}; "
        "weights outside the embeddings"
    )
    figure, (left, right) = canvas(title, note, found)
    for axes, quantity in ((left, "seconds"), (right, "bytes")):
        line = line_of(found, quantity, "w")
        plot(axes, [line])
        names = {point["value"]: name for name, point in zip(found["names"], points, strict=True)}
        for place in line.points:
            axes.annotate(names[place[0]], place, (7, -11), textcoords="offset points", color=INK, fontsize=9)
    decades = powers_within([point["value"] for point in points], 10)
    finish(left, "time of a step", seconds_text, "weights, w", ticks=decades)
    finish(right, "peak memory of a step", bytes_text, "weights, w", ticks=decades)
    return figure


def draw_batch(found: dict[str, Any]) -> Figure:
    points = found["points"]
    best = max(points, key=lambda point: point["tokens_per_second"])
    gain = best["tokens_per_second"] / points[0]["tokens_per_second"]
    title = f"{best['value']:,} rows at a time are {gain:.1f} times as quick as one by one"
    note = f"Transformer {found['model']}, rows of {found['time']} tokens a side, vocabulary {found['vocab']:,}"
    figure, (left, right) = canvas(title, note, found)
    plot(left, [line_of(found, "tokens_per_second")])
    plot(right, [line_of(found, "bytes", "b")])
    ticks = powers_within([point["value"] for point in points], 4)
    finish(left, "target tokens per second", count_text, "rows in the batch, b", ticks=ticks)
    finish(right, "peak memory of a step", bytes_text, "rows in the batch, b", ticks=ticks)
    return figure


def draw_data(found: dict[str, Any]) -> Figure:
    points = found["points"]
    last = points[-1]
    title = (
        f"{count_text(last['value'])} pairs: {last['sentences_per_second']:,.0f} sentences/s into the token store, "
        f"{last['peak_bytes'] / 1e6:,.0f} MB at the peak"
    )
    note = "pairs of the built-in grammar; the peak is of the whole process, torch loaded; learning stops at a million pairs"
    figure, (left, right) = canvas(title, note, found)
    colours = dict(zip(last["stages"], (VIOLET, GREEN, BLUE, PALE, ORANGE), strict=True))
    for axes, quantity in ((left, "core_seconds"), (right, "peak_bytes")):
        lines = [
            Line(stage, [(point["value"], point["stages"][stage][quantity]) for point in points], colour)
            for stage, colour in colours.items()
        ]
        plot(axes, lines, None if axes is left else max(1.1e9, 1.1 * last["peak_bytes"]))
    right.axhline(1e9, color=PALE, linewidth=1, linestyle=STROKES[1])
    right.annotate(
        "the limit", (0, 1e9), (4, 4), xycoords=("axes fraction", "data"), textcoords="offset points", color=PALE, fontsize=9
    )
    ticks = powers_within([point["value"] for point in points], 10)
    finish(left, "time of one core", seconds_text, "sentence pairs", ticks=ticks)
    finish(right, "peak memory of the process", bytes_text, "sentence pairs", ticks=ticks)
    return figure


def line_of(found: dict[str, Any], quantity: str, symbol: str = "", name: str = "") -> Line:
    """What was measured while `symbol` grew, named with its exponent; less than can be measured is not drawn."""
    points = [(point["value"], point[quantity]) for point in found["points"] if point[quantity] > 0]
    power = found["exponent"].get(quantity)
    label = name if power is None else f"{name} ${symbol}^{{{power:.2f}}}$"
    return Line(label, points, stopped=found["stopped"] is not None)


def canvas(title: str, note: str, found: dict[str, Any]) -> tuple[Figure, Sequence[Axes]]:
    figure = Figure(figsize=(12.5, 5.4))
    panels = figure.subplots(1, 2, gridspec_kw={"left": 0.06, "right": 0.855, "top": 0.79, "bottom": 0.12, "wspace": 0.62})
    figure.text(0.02, 0.945, title, fontsize=13.5, fontweight="bold", color=INK, va="center")
    where = f"{found['machine']}, torch {found['torch']}, {found['date']}"
    figure.text(0.02, 0.893, f"{note}  ·  {where}", fontsize=8.5, color=PALE, va="center")
    return figure, panels


def plot(axes: Axes, lines: Sequence[Line], linear_to: float | None = None) -> None:
    """The lines on logarithmic axes, or up to a linear height, and their names in a column to the right: each level with
    the end of its line, or as near to it as there is room."""
    axes.set_xscale("log")
    axes.set_yscale("log" if linear_to is None else "linear")
    lines = [line for line in lines if line.points]
    if not lines:
        return
    for line in lines:
        axes.plot(
            *zip(*line.points, strict=True), color=line.colour, linestyle=line.stroke, linewidth=1.8, marker="o", markersize=3
        )
        axes.plot(*line.points[-1], marker="x" if line.stopped else "o", color=line.colour, markersize=7 if line.stopped else 4)
    axes.margins(x=0.03, y=0.08)
    axes.autoscale_view()
    if linear_to is not None:
        axes.set_ylim(0, linear_to)
    place = (axes.transScale + axes.transLimits).transform  # data -> part of the axes
    edge = max(line.points[-1][0] for line in lines)
    named = sorted((line for line in lines if line.label), key=lambda line: float(place(line.points[-1])[1]))
    outside = [line for line in named if line.points[-1][0] == edge]
    heights = apart([float(place(line.points[-1])[1]) for line in outside], LABEL_GAP)
    for line, height in zip(outside, heights, strict=True):
        leader = LEADER | {"color": line.colour}
        where: dict[str, Any] = {"xytext": (1.05, height), "textcoords": "axes fraction", "arrowprops": leader}
        axes.annotate(line.label, line.points[-1], color=line.colour, annotation_clip=False, **LABEL, **where)
    for line in named:
        if line.points[-1][0] < edge:  # it was stopped: its name stands above its end
            where = {"xytext": (4, 11), "textcoords": "offset points", "ha": "right"}
            axes.annotate(line.label, line.points[-1], color=line.colour, **LABEL, **where)


def apart(heights: Sequence[float], gap: float) -> list[float]:
    """Sorted heights moved as little as needed to be at least `gap` from each other: neighbours that are too near form a
    group around their middle, and groups that then touch are joined."""
    groups: list[list[float]] = []
    for height in heights:
        groups.append([height])
        while len(groups) > 1 and bottom(groups[-1], gap) - top(groups[-2], gap) < gap:
            last = groups.pop()
            groups[-1] += last
    return [bottom(group, gap) + gap * index for group in groups for index in range(len(group))]


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
    """base^k or 2 base^k between the smallest and the largest of the values, whichever meets the largest."""
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


def rows_of(rows: int) -> str:
    return f"{rows} row{'s' if rows > 1 else ''}"


def spread_of(powers: Sequence[float | None]) -> str:
    known = sorted(power for power in powers if power is not None and math.isfinite(power))
    if not known:
        return "$n^?$"
    first, last = f"{known[0]:.1f}", f"{known[-1]:.1f}"
    return f"$n^{{{first}}}$" if first == last else f"$n^{{{first}–{last}}}$"


DRAWINGS: dict[str, Callable[[dict[str, Any]], Figure]] = {
    "length": draw_length,
    "size": draw_size,
    "batch": draw_batch,
    "data": draw_data,
}
