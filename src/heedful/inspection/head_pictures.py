"""All heads of a model in one picture: a grid of layers and heads for each kind of attention.

The darker a cell, the more is lost without the head; its mark says what the head does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, NamedTuple

from heedful.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMS = (".svg", ".png", ".pdf")
CELL = 0.72  # inches
SHADES = "Blues"
FAINT, EDGE = "#5a6672", "#d3dbe3"
DARK = 0.55  # of the darkest; from here on writing is white


class Cell(NamedTuple):
    kind: str
    layer: int
    head: int
    importance: float
    marks: Sequence[str]  # what it does, a word each; none: nothing known


class Meaning(NamedTuple):
    """What stands beside the grids, in words."""

    shades: str
    marks: str


def draw_heads(cells: Sequence[Cell], path: Path, meaning: Meaning) -> None:
    if path.suffix.lower() not in FORMS:
        raise ConfigError(f"given the picture {str(path)!r}; expected a name that ends in one of: {', '.join(FORMS)}")
    picture = picture_of(cells, meaning)
    try:
        picture.savefig(path, dpi=144)
    except OSError as error:
        sentence = f"the picture {path} cannot be written: {error.strerror}"
        raise ConfigError(sentence, hint="name a file in a folder that exists") from error


def picture_of(cells: Sequence[Cell], meaning: Meaning) -> Figure:
    try:
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import PowerNorm
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("a picture needs matplotlib, which is not installed", hint='pip install "heedful[plot]"') from error

    kinds = list(dict.fromkeys(cell.kind for cell in cells))
    sizes = {kind: grid([cell for cell in cells if cell.kind == kind]) for kind in kinds}
    width = max(5.0, sum(heads for _, heads in sizes.values()) * CELL + 0.75 * len(kinds) + 1.1)
    height = max(layers for layers, _ in sizes.values()) * CELL + 1.15
    picture = Figure(figsize=(width, max(height, 2.6)), facecolor="white", layout="constrained")
    shades = PowerNorm(0.5, vmin=0.0, vmax=max(1e-9, *(cell.importance for cell in cells)))  # small ones differ, too
    several = picture.subplots(
        1, len(kinds), squeeze=False, width_ratios=[heads for _, heads in sizes.values()], gridspec_kw={"wspace": 0.08}
    )[0]
    colours = ScalarMappable(norm=shades, cmap=SHADES)
    for axes, kind in zip(several, kinds, strict=True):
        draw_kind(axes, [cell for cell in cells if cell.kind == kind], colours)
        axes.set_title(kind, fontsize=11)
    bar = picture.colorbar(colours, ax=list(several), fraction=0.025, pad=0.015, aspect=22, panchor=False)
    bar.set_label(meaning.shades, fontsize=8)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)
    picture.supxlabel(fill(meaning.marks, int(15 * width)), fontsize=8, color=FAINT)  # letters to the inch
    return picture


def grid(cells: Sequence[Cell]) -> tuple[int, int]:
    """How many layers and heads there are."""
    return max(cell.layer for cell in cells) + 1, max(cell.head for cell in cells) + 1


def draw_kind(axes: Axes, cells: Sequence[Cell], colours: object) -> None:
    """Layer 0 is the top row, as on walls and pages."""
    from matplotlib.patches import Rectangle

    layers, heads = grid(cells)
    for cell in cells:
        colour = colours.to_rgba(max(cell.importance, 0.0))  # type: ignore[attr-defined]
        ink = "white" if colours.norm(max(cell.importance, 0.0)) > DARK else "#1b2733"  # type: ignore[attr-defined]
        axes.add_patch(Rectangle((cell.head - 0.5, cell.layer - 0.5), 1, 1, facecolor=colour, edgecolor=EDGE, linewidth=0.8))
        marks = "\n".join(cell.marks[:2]) + ("\n…" if len(cell.marks) > 2 else "")
        axes.text(cell.head, cell.layer - 0.1, marks, ha="center", va="center", fontsize=8, color=ink, linespacing=1.05)
        axes.text(
            cell.head, cell.layer + 0.38, figure(cell.importance), ha="center", va="center", fontsize=6, color=ink, alpha=0.85
        )
    axes.set(xlim=(-0.5, heads - 0.5), ylim=(layers - 0.5, -0.5), aspect="equal")
    axes.set_xticks(range(heads))
    axes.set_yticks(range(layers))
    axes.tick_params(length=0, labelsize=8)
    axes.set_xlabel("head", fontsize=8)
    axes.set_ylabel("layer", fontsize=8)
    for edge in axes.spines.values():
        edge.set_visible(False)


def figure(importance: float) -> str:
    """Three decimals, no 0 before the point: .123, -.010, 1.234; what rounds to nothing is .000, whatever its sign."""
    return re.sub(r"^(-?)0\.", r"\1.", f"{round(importance, 3) + 0.0:.3f}")
