"""The plot of families.py: BLEU and exact match by source length, one line per family.

Blue: self-attention; orange: recurrent; green: convolutional; violet: recurrent with a fixed-length vector.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from drawing import BLUE, GREEN, ORANGE, VIOLET, Line, assign_strokes, canvas, finish, plot
from matplotlib.ticker import FuncFormatter

COLORS = {"gpt": BLUE, "transformer": BLUE, "convs2s": GREEN, "bytenet": GREEN, "sutskever": VIOLET}  # others: recurrent
METRICS = {"bleu": "BLEU", "exact_match": "exact match, %"}


def draw(results: dict[str, Any], path: Path) -> Path:
    """Draw the results of all families."""
    first = next(iter(results.values()))
    shortest, *_, longest = first["lengths"]
    short, long = (
        sorted((bleu_of(result, length), name) for name, result in results.items()) for length in (shortest, longest)
    )
    title = (
        f"BLEU at {shortest} words {short[0][0]:.1f} to {short[-1][0]:.1f}, "
        f"at {longest} words {long[0][0]:.1f} ({long[0][1]}) to {long[-1][0]:.1f} ({long[-1][1]})"
    )
    counts = [score["sentences"] for score in first["lengths"].values()]
    note = f"built-in corpus, English to Italian; {min(counts)} to {max(counts)} unseen sentences of each length"
    figure, panels = canvas(title, note, first)
    for axes, (metric, heading) in zip(panels, METRICS.items(), strict=True):
        axes.set(xscale="linear", yscale="linear")
        lines = assign_strokes(line_of(name, result, metric) for name, result in results.items())
        lowest = min(height for line in lines for _, height in line.points)
        room = 0.06 * (100.0 - lowest) or 1.0
        plot(axes, lines, (lowest - room, 100.0 + room))
        lengths = [length for length, _ in lines[0].points]
        finish(axes, heading, lambda value: f"{value:g}", "words of the source", ticks=lengths)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda length, _, lengths=lengths: length_text(length, lengths)))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, facecolor="white")
    return path


def bleu_of(result: dict[str, Any], length: str) -> float:
    return float(result["lengths"][length]["bleu"]["value"])


def line_of(name: str, result: dict[str, Any], metric: str) -> Line:
    points = [(float(length), score[metric]["value"]) for length, score in result["lengths"].items()]
    return Line(name, points, COLORS.get(result["family"], ORANGE))


def length_text(length: float, lengths: list[float]) -> str:
    """The first and last length include all shorter and longer sentences."""
    return f"≤ {length:g}" if length == lengths[0] else f"{length:g} +" if length == lengths[-1] else f"{length:g}"
