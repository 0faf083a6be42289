"""The plot of pruning.py: BLEU against heads kept, one panel per kind of attention, from the JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from drawing import BLUE, INK, LABEL, LEADER, ORANGE, PALE, Line, finish, spread_labels
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pruning_rows import heads_of

NAMES = {"encoder": "encoder heads", "decoder": "decoder heads", "cross": "cross-attention heads", "all": "heads of all kinds"}
METHODS = {"gates": ("trained\ngates", BLUE), "gradient": ("by gradient,\nuntrained", ORANGE)}


def bleu(one: dict[str, Any]) -> float:
    return float(one["scores"]["valid"]["bleu"]["value"])


def curves(results: dict[str, Any], kind: str) -> Iterator[Line]:
    """From the full model down to the fewest heads."""
    for method, (label, color) in METHODS.items():
        points = [one for one in results["points"] if one["kind"] == kind and one["method"] == method]
        if points:
            whole = (float(heads_of(results["whole"]["heads"], kind)), bleu(results["whole"]))
            kept = [(float(heads_of(one["heads"], kind)), bleu(one)) for one in points]
            yield Line(label, [whole, *sorted(kept, reverse=True)], color)


def visible_end(points: Sequence[tuple[float, float]], low: float) -> tuple[float, float]:
    """Where a falling line ends or leaves the panel."""
    for (x, y), (further, deeper) in pairwise(points):
        if deeper < low <= y:
            return x + (further - x) * (y - low) / (y - deeper), low
    return points[-1]


def plot(axes: Axes, lines: list[Line], heights: tuple[float, float]) -> None:
    """Draw the visible part of the lines, and their labels beside the panel at the height where they end or leave it."""
    axes.set_ylim(*heights)
    low, high = heights
    for line in lines:
        axes.plot(*zip(*line.points, strict=True), color=line.color, linewidth=1.8, marker="o", markersize=4)
    ends = sorted(((visible_end(line.points, low), line) for line in lines), key=lambda end: end[0][1])
    levels = spread_labels([(position[1] - low) / (high - low) for position, _ in ends], 0.16)
    for (position, line), level in zip(ends, levels, strict=True):
        where: dict[str, Any] = {"xytext": (1.04, max(level, 0.03)), "textcoords": "axes fraction", "annotation_clip": False}
        where["arrowprops"] = LEADER | {"color": line.color}
        axes.annotate(line.label, position, color=line.color, **LABEL, **where)


def draw(results: dict[str, Any], path: Path) -> None:
    kinds = list(dict.fromkeys(one["kind"] for one in results["points"]))
    columns = min(len(kinds), 2)
    rows = -(-len(kinds) // columns)
    width, height = 0.9 + 4.6 * columns, 1.1 + 3.7 * rows
    figure = Figure(figsize=(width, height))
    sides = {"left": 0.7 / width, "right": 1 - 1.35 / width, "top": 1 - 1.15 / height, "bottom": 0.62 / height}
    panels = figure.subplots(rows, columns, squeeze=False, gridspec_kw=sides | {"wspace": 0.52, "hspace": 0.42}).flat
    whole = bleu(results["whole"])
    gated = [bleu(one) for one in results["points"] if one["method"] == "gates"]
    lowest, highest = min(gated, default=0.0), max([whole, *gated])
    heights = (max(0.0, lowest - 0.25 * (whole - lowest) - 0.2), highest + 0.1 * (whole - lowest) + 0.1)
    for axes, kind in zip(panels, kinds, strict=False):  # with an odd number the last panel stays empty
        axes.axhline(whole - results["allowed"], color=PALE, linewidth=0.8, linestyle=(0, (2, 2)))
        most = heads_of(results["whole"]["heads"], kind)
        plot(axes, list(curves(results, kind)), heights)
        axes.set_xlim(most * 1.04, -most * 0.04)
        finish(axes, NAMES[kind], lambda value: f"{value:g}", "heads kept", [round(most * part / 4) for part in range(5)])
    for axes in list(figure.axes)[len(kinds) :]:
        axes.remove()
    figure.text(0.2 / width, 1 - 0.32 / height, "BLEU as heads are pruned", fontsize=13.5, fontweight="bold", color=INK)
    note = f"validation data; dotted: {results['allowed']:g} below the full model  ·  {results['machine']}, {results['date']}"
    figure.text(0.2 / width, 1 - 0.62 / height, note, fontsize=8.5, color=PALE)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=140, facecolor="white")


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
