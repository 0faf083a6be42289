"""All heads of a model in one picture: a grid of layers and heads for each kind of attention.

The darker a blue cell, the more is lost without the head; orange ones do harm. A mark says what the head does.

    shade = sign(x) sqrt(|x| / largest |x|)        so that small ones differ, too
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, NamedTuple

from heedful.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure

FORMS = (".svg", ".png", ".pdf")
CELL = 0.92  # inches
SHADES = ["#7f2f04", "#e07b24", "#fbd3a8", "#ffffff", "#c5d8ee", "#5c94cc", "#0b346e"]  # from all gained to all lost
FAINT, EDGE = "#5a6672", "#d3dbe3"
DARK = 0.62  # of the darkest; from here on writing is white
LARGE, PLAIN, SMALL = 13, 10, 9  # points


class Cell(NamedTuple):
    kind: str
    layer: int
    head: int
    importance: float
    marks: Sequence[str]  # what it does, a word each; none: nothing known


class Meaning(NamedTuple):
    """What stands beside and below the grids, in words."""

    unit: str  # of importance
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
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("a picture needs matplotlib, which is not installed", hint='pip install "heedful[plot]"') from error

    kinds = list(dict.fromkeys(cell.kind for cell in cells))
    sizes = {kind: grid([cell for cell in cells if cell.kind == kind]) for kind in kinds}
    width = max(5.0, sum(heads for _, heads in sizes.values()) * CELL + 0.75 * len(kinds) + 1.1)
    height = max(layers for layers, _ in sizes.values()) * CELL + 1.4
    picture = Figure(figsize=(width, max(height, 2.6)), facecolor="white", layout="constrained")
    several = picture.subplots(
        1, len(kinds), squeeze=False, width_ratios=[heads for _, heads in sizes.values()], gridspec_kw={"wspace": 0.08}
    )[0]
    colours = colours_of([cell.importance for cell in cells])
    for axes, kind in zip(several, kinds, strict=True):
        draw_kind(axes, [cell for cell in cells if cell.kind == kind], colours)
        axes.set_title(kind, fontsize=LARGE)
    bar = picture.colorbar(colours, ax=list(several), fraction=0.025, pad=0.015, aspect=22, panchor=False)
    bar.set_label(meaning.unit, fontsize=PLAIN)
    bar.ax.tick_params(labelsize=SMALL)
    bar.outline.set_visible(False)
    told = [fill(text, int(12 * width)) for text in (f"{meaning.shades} · square-root scale", meaning.marks) if text]
    picture.supxlabel("\n".join(told), fontsize=PLAIN, color=FAINT)  # 12 letters to the inch
    return picture


def colours_of(values: Sequence[float]) -> ScalarMappable:
    """From the least to the largest of the values and 0, which is white; as dark as each is far from it."""
    import numpy as np
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import FuncNorm, LinearSegmentedColormap, ListedColormap

    least, largest = min(0.0, *values), max(1e-9, *values)
    every = LinearSegmentedColormap.from_list("gained and lost", SHADES)
    low, high = (root(value / max(-least, largest)) for value in (least, largest))  # -1 to 1
    part = ListedColormap([every((share + 1) / 2) for share in np.linspace(low, high, 512)])
    norm = FuncNorm((lambda x: np.sign(x) * abs(x) ** 0.5, lambda x: np.sign(x) * x**2), vmin=least, vmax=largest)
    return ScalarMappable(norm=norm, cmap=part)


def root(value: float) -> float:
    return math.copysign(math.sqrt(abs(value)), value)


def grid(cells: Sequence[Cell]) -> tuple[int, int]:
    """How many layers and heads there are."""
    return max(cell.layer for cell in cells) + 1, max(cell.head for cell in cells) + 1


def draw_kind(axes: Axes, cells: Sequence[Cell], colours: ScalarMappable) -> None:
    """Layer 0 is the top row, as on walls and pages."""
    import numpy as np
    from matplotlib.patches import Rectangle

    layers, heads = grid(cells)
    farthest = max(map(abs, colours.get_clim()))
    for cell, colour in zip(cells, colours.to_rgba(np.array([cell.importance for cell in cells])), strict=True):
        ink = "white" if abs(root(cell.importance / farthest)) > DARK else "#1b2733"
        axes.add_patch(Rectangle((cell.head - 0.5, cell.layer - 0.5), 1, 1, facecolor=colour, edgecolor=EDGE, linewidth=0.8))
        marks = "\n".join(cell.marks[:2]) + ("\n…" if len(cell.marks) > 2 else "")
        axes.text(cell.head, cell.layer - 0.1, marks, ha="center", va="center", fontsize=PLAIN, color=ink, linespacing=1.05)
        axes.text(cell.head, cell.layer + 0.36, figure(cell.importance), ha="center", va="center", fontsize=SMALL, color=ink)
    axes.set(xlim=(-0.5, heads - 0.5), ylim=(layers - 0.5, -0.5), aspect="equal")
    axes.set_xticks(range(heads))
    axes.set_yticks(range(layers))
    axes.tick_params(length=0, labelsize=PLAIN)
    axes.set_xlabel("head", fontsize=PLAIN)
    axes.set_ylabel("layer", fontsize=PLAIN)
    for edge in axes.spines.values():
        edge.set_visible(False)


def figure(importance: float) -> str:
    """Three decimals, no 0 before the point: .123, -.010, 1.234; what rounds to nothing is .000, whatever its sign."""
    return re.sub(r"^(-?)0\.", r"\1.", f"{round(importance, 3) + 0.0:.3f}")
