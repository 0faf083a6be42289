"""A sketch as a file: as SVG by ourselves, as PNG or PDF through matplotlib (pip install 'heedful[plot]').

A PNG holds shapes of letters, so the machine must have a font for them. Fonts that know Chinese, Japanese, Korean or emoji
are used where they are installed; a character that no font knows is written as its number, \\u732b, which can still be read.
"""

from __future__ import annotations

import io
import logging
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from heedful.errors import ConfigError
from heedful.inspection.figure import Figure, Heatmap, Label, Line, Polyline, color
from heedful.inspection.svg import as_svg
from heedful.storage.writing import output_bytes

DOTS = 160  # in an inch; a pixel of a sketch is 1/96 of an inch
FAMILIES = (
    *("DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "Source Han Sans SC", "PingFang SC"),
    *("Hiragino Sans", "Microsoft YaHei", "Malgun Gothic", "WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "Droid Sans Fallback"),
    *("IPAGothic", "Unifont", "Noto Emoji", "Symbola", "Segoe UI Emoji", "Arial Unicode MS"),
)
FORMATS = (".svg", ".png", ".pdf")


def save(figure: Figure, path: Path) -> None:
    """In the form that the name says."""
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"--picture: given {path.name!r}, expected a name that ends in one of: {', '.join(FORMATS)}")
    form = path.suffix.lower()
    with output_bytes(path) as file:
        file.write(as_svg(figure).encode() if form == ".svg" else plot(figure, form[1:]))


def plot(figure: Figure, form: str) -> bytes:
    matplotlib = import_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Plot

    with matplotlib.rc_context({"font.family": list(fonts()), "text.parse_math": False}):
        plot = Plot(figsize=(figure.width / 96, figure.height / 96), dpi=DOTS, facecolor="white")
        FigureCanvasAgg(plot)
        axes = plot.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, figure.width), ylim=(figure.height, 0))
        axes.axis("off")
        for mark in figure.marks:
            if isinstance(mark, Heatmap):
                draw_heatmap(axes, mark)
            elif isinstance(mark, Label):
                draw_label(axes, mark)
            elif isinstance(mark, Polyline):
                axes.plot(*zip(*mark.points, strict=True), color=mark.color, linewidth=0.75 * mark.width)
            else:
                draw_line(axes, mark)
        content = io.BytesIO()
        plot.savefig(content, format=form, dpi=DOTS)
        return content.getvalue()


def import_matplotlib() -> Any:
    try:
        import matplotlib.font_manager
        import matplotlib.patches
    except ImportError as error:
        raise ConfigError(
            "a PNG or PDF is drawn by matplotlib, which is not installed",
            hint="pip install 'heedful[plot]', or name an .svg file",
        ) from error
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # that a font has no other weight is no news
    return matplotlib


def draw_line(axes: Any, line: Line) -> None:
    from matplotlib.path import Path as Bends

    middle = (line.start[0] + line.end[0]) / 2
    points = [line.start, (middle, line.start[1]), (middle, line.end[1]), line.end]
    axes.add_patch(
        import_matplotlib().patches.PathPatch(
            Bends(points, [Bends.MOVETO, *[Bends.CURVE4] * 3]),
            facecolor="none",
            edgecolor="#2462a8",
            linewidth=0.75 * (1 + 2.5 * line.strength),
            alpha=line.strength,
        )
    )


def draw_heatmap(axes: Any, cells: Heatmap) -> None:
    shades = [[color(value / cells.vmax, cells.palette) for value in row] for row in cells.values.tolist()]
    extent = (cells.x, cells.x + cells.width, cells.y + cells.height, cells.y)
    axes.imshow(shades, extent=extent, aspect="auto", interpolation="nearest")
    frame = import_matplotlib().patches.Rectangle((cells.x, cells.y), cells.width, cells.height, fill=False, linewidth=0.4)
    axes.add_patch(frame)
    axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())


def draw_label(axes: Any, label: Label) -> None:
    axes.text(
        label.x,
        label.y,
        replace_missing_glyphs(label.text),
        fontsize=label.size * 72 / 96,
        color=label.color,
        ha={"start": "left", "middle": "center", "end": "right"}[label.anchor],
        va="center_baseline" if not label.rotation else "center",
        rotation=label.rotation,
        rotation_mode="anchor",
    )


def replace_missing_glyphs(text: str) -> str:
    """What no installed font knows by its number."""
    known = characters()
    return "".join(mark if ord(mark) in known else mark.encode("ascii", "backslashreplace").decode() for mark in text)


@cache
def fonts() -> tuple[str, ...]:
    """Those of the families that are installed, also since matplotlib last looked; the first one comes with it."""
    manager = import_matplotlib().font_manager
    known = {Path(font.fname) for font in manager.fontManager.ttflist}
    for path in map(Path, manager.findSystemFonts()):
        if path not in known:
            with suppress(RuntimeError, OSError):  # a font in a format that it cannot draw
                manager.fontManager.addfont(path)
    there = set(manager.fontManager.get_font_names())
    return tuple(name for name in FAMILIES if name in there)


@cache
def characters() -> frozenset[int]:
    manager = import_matplotlib().font_manager
    return frozenset(mark for name in fonts() for mark in manager.get_font(manager.findfont(name)).get_charmap())
