"""The plots of scaling.py: time and memory side by side, from the JSON.

The color shows the family (attention, recurrence, convolution), the stroke its members.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from drawing import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PALE,
    STROKES,
    VIOLET,
    Line,
    assign_strokes,
    bytes_text,
    canvas,
    count_text,
    finish,
    plot,
    powers_within,
    seconds_text,
)
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COSTS = {"n^2 d": BLUE, "r n d": VIOLET, "n d^2": ORANGE, "k n d^2": GREEN}  # of a layer
Heading = tuple[str, Callable[[float], str]]  # of a panel, and how its values are written
TIME: Heading = ("time per step", seconds_text)
MEMORY: Heading = ("peak memory per step", bytes_text)
FAMILIES = dict.fromkeys(("transformer", "gpt"), BLUE) | dict.fromkeys(("convs2s", "bytenet"), GREEN)  # others: recurrent


def draw(results: dict[str, Any], folder: Path) -> Iterator[Path]:
    """Write one PNG for each measured part."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, drawing in DRAWINGS.items():
        if part in results:
            path = folder / f"scaling-{part}.png"
            drawing(results[part]).savefig(path, dpi=150, facecolor="white")
            yield path


def draw_length(results: dict[str, Any]) -> Figure:
    kinds = results["kinds"]
    steep = [kind["exponent"]["seconds"] for kind in kinds.values() if kind["expected_exponent"] > 1.5]
    flat = [kind["exponent"]["seconds"] for kind in kinds.values() if kind["expected_exponent"] < 1.5]
    title = (
        f"Attention over all tokens takes time as {spread_of(steep)}; "
        f"windows, recurrences and convolutions as {spread_of(flat)}"
    )
    layer = results["layer"]
    note = (
        f"one causal layer, dim {layer['dim']}, {layer['heads']} heads, window {layer['window']}, kernel {layer['kernel']}, "
        f"{rows_of(results['rows'])}; exponents from the last three points"
    )
    figure, panels = canvas(title, note, results)
    for axes, quantity in zip(panels, ("seconds", "bytes"), strict=True):
        colored = [
            line_of(kind, quantity, "n", name)._replace(color=COSTS.get(kind["cost"], PALE)) for name, kind in kinds.items()
        ]
        plot(axes, assign_strokes(colored))
    lengths = [point["value"] for kind in kinds.values() for point in kind["points"]]
    finish_both(panels, (TIME, MEMORY), "tokens in the sequence, n", powers_within(lengths, 4))
    return figure


def draw_families(results: dict[str, Any]) -> Figure:
    """The time of a step, absolute and relative to the shortest sentences."""
    kinds = {name: kind for name, kind in results["kinds"].items() if kind["points"]}
    shortest, longest = (pick(results["lengths"]) for pick in (min, max))
    attending = [growth_of(kind) for name, kind in kinds.items() if name not in (*FAMILIES, "sutskever")]
    others = [("fixed vector", "sutskever"), ("the Transformer", "transformer")]
    title = f"Steps from {shortest} to {longest} tokens: recurrence with attention {times_text(attending)}" + "".join(
        f", {words} {times_text([growth_of(kinds[name])])}" for words, name in others if name in kinds
    )
    note = (
        f"steps of {results['tokens']:,} tokens per side at any length; dim {results['dim']}, vocabulary {results['vocab']:,}"
    )
    figure, panels = canvas(title, note, results)
    for axes, relative in zip(panels, (False, True), strict=True):
        colored = []
        for name, kind in kinds.items():
            line = line_of(kind | {"exponent": {}}, "seconds", name=name)._replace(color=FAMILIES.get(name, ORANGE))
            unit = line.points[0][1] if relative else 1.0
            colored.append(line._replace(points=[(length, seconds / unit) for length, seconds in line.points]))
        plot(axes, assign_strokes(colored))
    growth = ("time, as a multiple of the shortest sentences'", lambda value: f"{value:g} x")
    finish_both(panels, (TIME, growth), "tokens of a sentence", powers_within(results["lengths"], 4))
    return figure


def growth_of(kind: dict[str, Any]) -> float:
    first, *_, last = kind["points"]
    return float(last["seconds"] / first["seconds"])


def times_text(growths: Sequence[float]) -> str:
    low, high = f"{min(growths):.1f}", f"{max(growths):.1f}"
    return f"x {low}" if low == high else f"x {low}–{high}"


def draw_size(results: dict[str, Any]) -> Figure:
    points = results["points"]
    growth = {name: points[-1][name] / points[0][name] for name in ("value", "seconds")}
    title = f"{growth['value']:,.0f} times the weights take {growth['seconds']:,.0f} times the time"
    note = (
        f"Transformer, {rows_of(results['rows'])} x {results['time']} tokens per side, vocabulary {results['vocab']:,}; "
        "weights outside the embeddings"
    )
    figure, panels = canvas(title, note, results)
    for axes, quantity in zip(panels, ("seconds", "bytes"), strict=True):
        line = line_of(results, quantity, "w")
        plot(axes, [line])
        names = {point["value"]: name for name, point in zip(results["names"], points, strict=True)}
        for point in line.points:
            axes.annotate(names[point[0]], point, (7, -11), textcoords="offset points", color=INK, fontsize=9)
    finish_both(panels, (TIME, MEMORY), "weights, w", powers_within([point["value"] for point in points], 10))
    return figure


def draw_batch(results: dict[str, Any]) -> Figure:
    points = results["points"]
    best = max(points, key=lambda point: point["tokens_per_second"])
    gain = best["tokens_per_second"] / points[0]["tokens_per_second"]
    title = f"{best['value']:,} rows per batch are {gain:.1f} times as fast as one row"
    note = f"Transformer {results['model']}, rows of {results['time']} tokens per side, vocabulary {results['vocab']:,}"
    figure, panels = canvas(title, note, results)
    for axes, line in zip(panels, (line_of(results, "tokens_per_second"), line_of(results, "bytes", "b")), strict=True):
        plot(axes, [line])
    speed, rows = ("target tokens per second", count_text), [point["value"] for point in points]
    finish_both(panels, (speed, MEMORY), "rows in the batch, b", powers_within(rows, 4))
    return figure


def draw_data(results: dict[str, Any]) -> Figure:
    points = results["points"]
    last = points[-1]
    title = (
        f"{count_text(last['value'])} pairs: {last['sentences_per_second']:,.0f} sentences/s into the token store, "
        f"{last['peak_bytes'] / 1e6:,.0f} MB at the peak"
    )
    note = "pairs of the built-in grammar; peak memory of the process with torch; tokenizer trained on at most a million pairs"
    figure, panels = canvas(title, note, results)
    left, right = panels
    right.set_yscale("linear")
    colors = dict(zip(last["stages"], (VIOLET, GREEN, BLUE, PALE, ORANGE), strict=True))
    for axes, quantity in zip(panels, ("core_seconds", "peak_bytes"), strict=True):
        lines = [
            Line(stage, [(point["value"], point["stages"][stage][quantity]) for point in points], color)
            for stage, color in colors.items()
        ]
        plot(axes, lines, None if axes is left else (0.0, max(1.1e9, 1.1 * last["peak_bytes"])))
    right.axhline(1e9, color=PALE, linewidth=1, linestyle=STROKES[1])
    right.annotate(
        "the limit", (0, 1e9), (4, 4), xycoords=("axes fraction", "data"), textcoords="offset points", color=PALE, fontsize=9
    )
    headings = ("time of one core", seconds_text), ("peak memory of the process", bytes_text)
    finish_both(panels, headings, "sentence pairs", powers_within([point["value"] for point in points], 10))
    return figure


def finish_both(panels: Sequence[Axes], headings: Sequence[Heading], below: str, ticks: Sequence[float]) -> None:
    for axes, (heading, text) in zip(panels, headings, strict=True):
        finish(axes, heading, text, below, ticks)


def line_of(results: dict[str, Any], quantity: str, symbol: str = "", name: str = "") -> Line:
    """The line of a quantity, labeled with its exponent in `symbol`; values of 0 are not drawn."""
    points = [(point["value"], point[quantity]) for point in results["points"] if point[quantity] > 0]
    power = results["exponent"].get(quantity)
    label = name if power is None else f"{name} ${symbol}^{{{power:.2f}}}$"
    return Line(label, points, stopped=results["stopped"] is not None)


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
    "families": draw_families,
    "size": draw_size,
    "batch": draw_batch,
    "data": draw_data,
}
