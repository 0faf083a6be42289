"""The picture of families.py: BLEU and exact match against the length of the source, a line for each family.

Blue attends, orange recurs, green convolves; the one that must keep a sentence in a single vector is violet.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from drawing import BLUE, GREEN, ORANGE, VIOLET, Line, canvas, finish, plot, told_apart
from matplotlib.ticker import FuncFormatter

COLORS = {"gpt": BLUE, "transformer": BLUE, "convs2s": GREEN, "bytenet": GREEN, "sutskever": VIOLET}  # others recur
METRICS = {"bleu": "BLEU", "exact_match": "sentences exactly right, %"}


def draw(found: dict[str, Any], path: Path) -> Path:
    """From what was measured of each family."""
    first = next(iter(found.values()))
    shortest, *_, longest = first["lengths"]
    short, long = (sorted((bleu_of(one, length), name) for name, one in found.items()) for length in (shortest, longest))
    title = (
        f"BLEU at {shortest} words {short[0][0]:.1f} to {short[-1][0]:.1f}, "
        f"at {longest} words {long[0][0]:.1f} ({long[0][1]}) to {long[-1][0]:.1f} ({long[-1][1]})"
    )
    counts = [score["sentences"] for score in first["lengths"].values()]
    note = f"built-in corpus, English to Italian; {min(counts)} to {max(counts)} unseen sentences of each length"
    figure, panels = canvas(title, note, first)
    for axes, (metric, heading) in zip(panels, METRICS.items(), strict=True):
        axes.set(xscale="linear", yscale="linear")
        lines = told_apart(line_of(name, one, metric) for name, one in found.items())
        lowest = min(height for line in lines for _, height in line.points)
        room = 0.06 * (100.0 - lowest) or 1.0
        plot(axes, lines, (lowest - room, 100.0 + room))
        lengths = [length for length, _ in lines[0].points]
        finish(axes, heading, lambda value: f"{value:g}", "words of the source", ticks=lengths)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda length, _, lengths=lengths: length_text(length, lengths)))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, facecolor="white")
    return path


def bleu_of(one: dict[str, Any], length: str) -> float:
    return float(one["lengths"][length]["bleu"]["value"])


def line_of(name: str, one: dict[str, Any], metric: str) -> Line:
    points = [(float(length), score[metric]["value"]) for length, score in one["lengths"].items()]
    return Line(name, points, COLORS.get(one["family"], ORANGE))


def length_text(length: float, lengths: list[float]) -> str:
    """The outermost stand for all beyond them, too."""
    return f"≤ {length:g}" if length == lengths[0] else f"{length:g} +" if length == lengths[-1] else f"{length:g}"
