"""The picture of pruning.py: BLEU against heads kept, a panel for each kind of attention, all of it from the JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from drawing import BLUE, INK, LABEL, LEADER, ORANGE, PALE, Line, apart, finish
from matplotlib.axes import Axes
from matplotlib.figure import Figure

NAMES = {"encoder": "encoder heads", "decoder": "decoder heads", "cross": "cross-attention heads", "all": "heads of all kinds"}
METHODS = {"gates": ("trained\ngates", BLUE), "gradient": ("by gradient,\nuntrained", ORANGE)}


def heads_of(heads: dict[str, Any], kind: str) -> int:
    """Of one kind or of all; of each layer, or already added up."""
    counts = {name: count if isinstance(count, int) else sum(count) for name, count in heads.items()}
    return sum(counts.values()) if kind == "all" else counts[kind]


def bleu(one: dict[str, Any]) -> float:
    return float(one["scores"]["valid"]["bleu"]["value"])


def curves(found: dict[str, Any], kind: str) -> Iterator[Line]:
    """From the whole model down to the fewest heads."""
    for method, (label, color) in METHODS.items():
        points = [one for one in found["points"] if one["kind"] == kind and one["method"] == method]
        if points:
            whole = (float(heads_of(found["whole"]["heads"], kind)), bleu(found["whole"]))
            kept = [(float(heads_of(one["heads"], kind)), bleu(one)) for one in points]
            yield Line(label, [whole, *sorted(kept, reverse=True)], color)


def last_seen(points: Sequence[tuple[float, float]], low: float) -> tuple[float, float]:
    """Where a falling line ends, or where it goes below the panel."""
    for (x, y), (further, deeper) in pairwise(points):
        if deeper < low <= y:
            return x + (further - x) * (y - low) / (y - deeper), low
    return points[-1]


def plot(axes: Axes, lines: list[Line], heights: tuple[float, float]) -> None:
    """The lines as far as they can be seen, and their names beside the panel, level with where they end or leave it."""
    axes.set_ylim(*heights)
    low, high = heights
    for line in lines:
        axes.plot(*zip(*line.points, strict=True), color=line.color, linewidth=1.8, marker="o", markersize=4)
    ends = sorted(((last_seen(line.points, low), line) for line in lines), key=lambda end: end[0][1])
    levels = apart([(place[1] - low) / (high - low) for place, _ in ends], 0.16)
    for (place, line), level in zip(ends, levels, strict=True):
        where: dict[str, Any] = {"xytext": (1.04, max(level, 0.03)), "textcoords": "axes fraction", "annotation_clip": False}
        where["arrowprops"] = LEADER | {"color": line.color}
        axes.annotate(line.label, place, color=line.color, **LABEL, **where)


def draw(found: dict[str, Any], path: Path) -> None:
    kinds = list(dict.fromkeys(one["kind"] for one in found["points"]))
    columns = min(len(kinds), 2)
    rows = -(-len(kinds) // columns)
    width, height = 0.9 + 4.6 * columns, 1.1 + 3.7 * rows
    figure = Figure(figsize=(width, height))
    sides = {"left": 0.7 / width, "right": 1 - 1.35 / width, "top": 1 - 1.15 / height, "bottom": 0.62 / height}
    panels = figure.subplots(rows, columns, squeeze=False, gridspec_kw=sides | {"wspace": 0.52, "hspace": 0.42}).flat
    whole = bleu(found["whole"])
    gated = [bleu(one) for one in found["points"] if one["method"] == "gates"]
    lowest, highest = min(gated, default=0.0), max([whole, *gated])
    heights = (max(0.0, lowest - 0.25 * (whole - lowest) - 0.2), highest + 0.1 * (whole - lowest) + 0.1)
    for axes, kind in zip(panels, kinds, strict=False):  # of an odd number the last place stays empty
        axes.axhline(whole - found["allowed"], color=PALE, linewidth=0.8, linestyle=(0, (2, 2)))
        most = heads_of(found["whole"]["heads"], kind)
        plot(axes, list(curves(found, kind)), heights)
        axes.set_xlim(most * 1.04, -most * 0.04)
        finish(axes, NAMES[kind], lambda value: f"{value:g}", "heads kept", [round(most * part / 4) for part in range(5)])
    for axes in list(figure.axes)[len(kinds) :]:
        axes.remove()
    figure.text(0.2 / width, 1 - 0.32 / height, "BLEU as heads are taken out", fontsize=13.5, fontweight="bold", color=INK)
    note = f"validation data; dotted: {found['allowed']:g} below the whole model  ·  {found['machine']}, {found['date']}"
    figure.text(0.2 / width, 1 - 0.62 / height, note, fontsize=8.5, color=PALE)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=140, facecolor="white")


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
