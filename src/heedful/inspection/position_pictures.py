"""Positions drawn: what a scheme says of each position, and how alike two positions look by their distance.

A row for each scheme, equal ones together: the encoding as a heat-map on the left, similarity by distance on the right. Of many
dimensions some pairs are drawn, so that no row is lost between the pixels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from torch import equal

from heedful.errors import ConfigError
from heedful.inspection.positions import Encoding

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

INK, PALE, BLUE = "#222222", "#6f6f6f", "#1f5fa8"
WHAT = {
    "vectors": ("added to the embedding", "position"),
    "angles": ("angle by which queries and keys are turned", "position"),
    "biases": ("added to the score", "distance of the key"),
    "nothing": ("nothing is said of positions", "position"),
}
SIMILAR = {
    "vectors": "p · p′",
    "angles": "score of like tokens",
    "biases": "score of like tokens",
    "nothing": "score of like tokens",
}


ROWS = 64  # of a heat-map, at most


class Drawn(NamedTuple):
    encoding: Encoding
    similarity: Tensor  # (distances,)
    scheme: str = ""

    def equals(self, other: Drawn) -> bool:
        mine, yours = self.encoding, other.encoding
        same = (self.scheme, mine.kind, mine.first, mine.columns) == (other.scheme, yours.kind, yours.first, yours.columns)
        return same and equal(mine.values, yours.values) and equal(self.similarity, other.similarity)


def draw_positions(schemes: Mapping[str, Drawn], path: Path) -> None:
    """As PNG, SVG or PDF, whatever the file's name ends with."""
    figure = picture(schemes)
    if path.suffix.lstrip(".") not in figure.canvas.get_supported_filetypes():
        raise ConfigError(f"--picture: given {path.name!r}, expected a name that ends with .png, .svg or .pdf")
    try:
        figure.savefig(path, dpi=150, facecolor="white")
    except OSError as error:
        problem = f"--picture: {path} cannot be written: {error.strerror}"
        raise ConfigError(problem, hint="name a file in a folder that exists") from error


def picture(schemes: Mapping[str, Drawn]) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ConfigError("a picture needs matplotlib, which is not installed", hint='pip install "heedful[plot]"') from error
    schemes = together(schemes)
    figure = Figure(figsize=(10, 0.5 + 2.9 * len(schemes)), layout="constrained")
    rows = figure.subplots(len(schemes), 2, squeeze=False, width_ratios=(1.7, 1))
    for (left, right), (name, drawn) in zip(rows, schemes.items(), strict=True):
        draw_encoding(left, ", ".join(filter(None, (name, drawn.scheme))), drawn.encoding)
        draw_similarity(right, drawn)
    return figure


def together(schemes: Mapping[str, Drawn]) -> dict[str, Drawn]:
    """Those that say the same as one, by all their names."""
    found: list[tuple[list[str], Drawn]] = []
    for name, drawn in schemes.items():
        names = next((names for names, other in found if drawn.equals(other)), None)
        if names is None:
            found.append(([name], drawn))
        else:
            names.append(name)
    return {" and ".join(names): drawn for names, drawn in found}


def dimensions(count: int) -> list[int]:
    """Which are drawn: pairs (of a sine and a cosine) at equal steps."""
    step = math.ceil(count / ROWS)
    return [at for at in range(count) if (at // 2) % step == 0]


def draw_encoding(axes: Axes, name: str, said: Encoding) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    what, across = WHAT[said.kind]
    kept = dimensions(said.values.shape[1])
    columns = said.columns if len(kept) == said.values.shape[1] else f"{said.columns}, {len(kept)} of {said.values.shape[1]}"
    values = said.values.float().cpu()[:, kept]
    turns = said.kind == "angles"
    if turns:
        values, low, high = values.remainder(2 * math.pi), 0.0, 2 * math.pi
    else:
        high = float(values.abs().max()) or 1.0
        low = -high
    extent = (said.first - 0.5, said.first + len(values) - 0.5, values.shape[1] - 0.5, -0.5)
    colours = "twilight" if turns else "RdBu"  # a full turn has the colour of none
    image = axes.imshow(
        values.T.numpy(), aspect="auto", interpolation="nearest", extent=extent, cmap=colours, vmin=low, vmax=high
    )
    finish(axes, f"{name}: {what}", across, columns)
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda row, _: str(kept[int(row)]) if 0 <= row < len(kept) else ""))
    if said.kind == "nothing":
        axes.set_yticks([])
        return
    bar = axes.figure.colorbar(image, ax=axes, pad=0.015, fraction=0.04)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8, labelcolor=PALE)
    if turns:
        bar.set_ticks([0, math.pi, 2 * math.pi], labels=["0", "π", "2π"])


def draw_similarity(axes: Axes, drawn: Drawn) -> None:
    axes.plot(drawn.similarity.tolist(), color=BLUE, linewidth=1.6)
    axes.grid(color="#e9e9e9", linewidth=0.8)
    axes.set_axisbelow(True)
    low, high = float(drawn.similarity.min()), float(drawn.similarity.max())
    room = 0.08 * (high - low) or 1.0
    axes.set_ylim(low - room, high + room)
    finish(axes, "similarity by distance", "distance", SIMILAR[drawn.encoding.kind])


def finish(axes: Axes, title: str, across: str, up: str) -> None:
    axes.set_title(title, loc="left", fontsize=10.5, color=INK, pad=6)
    axes.set_xlabel(across, fontsize=9, color=PALE)
    axes.set_ylabel(up, fontsize=9, color=PALE)
    axes.tick_params(length=0, labelsize=8, labelcolor=PALE)
    for side in axes.spines.values():
        side.set_visible(False)
