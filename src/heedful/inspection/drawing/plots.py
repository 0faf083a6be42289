"""Write figures to files: SVG directly, PNG and PDF with matplotlib (pip install 'heedful[plot]').

PNG and PDF need fonts on this machine. Fonts for Chinese, Japanese, Korean and emoji are used where installed; a character
without a glyph is written as its escape sequence, for example \\u732b.
"""

from __future__ import annotations

import io
import logging
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from heedful.errors import ConfigError
from heedful.inspection.drawing.figure import Area, Figure, Heatmap, Label, Line, Picture, Polyline, color
from heedful.inspection.drawing.svg import as_svg
from heedful.storage.writing import output_bytes

DOTS = 160  # per inch; a pixel of a figure is 1/96 inch
FAMILIES = (
    *("DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "Source Han Sans SC", "PingFang SC"),
    *("Hiragino Sans", "Microsoft YaHei", "Malgun Gothic", "WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "Droid Sans Fallback"),
    *("IPAGothic", "Unifont", "Noto Emoji", "Symbola", "Segoe UI Emoji", "Arial Unicode MS"),
)
FORMATS = (".svg", ".png", ".pdf")


def save(figure: Figure, path: Path) -> None:
    """Write the figure in the format given by the file extension."""
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"--picture: given {path.name!r}, expected a name that ends in one of: {', '.join(FORMATS)}")
    format = path.suffix.lower()
    with output_bytes(path) as file:
        file.write(as_svg(figure).encode() if format == ".svg" else plot(figure, format[1:]))


def plot(figure: Figure, format: str) -> bytes:
    """Return the figure as PNG or PDF."""
    matplotlib = import_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Plot

    with matplotlib.rc_context({"font.family": list(fonts()), "text.parse_math": False}):
        plot = Plot(figsize=(figure.width / 96, figure.height / 96), dpi=DOTS, facecolor="white")
        FigureCanvasAgg(plot)
        axes = plot.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, figure.width), ylim=(figure.height, 0))
        axes.axis("off")
        for order, mark in enumerate(figure.marks):  # later marks above earlier ones, as in SVG
            if isinstance(mark, Heatmap):
                draw_heatmap(axes, mark, order)
            elif isinstance(mark, Label):
                draw_label(axes, mark, order)
            elif isinstance(mark, Picture):
                draw_colors(axes, mark, mark.pixels.expand(-1, -1, 3).tolist(), order)
            elif isinstance(mark, Polyline):
                style: Any = (0, (5 / mark.width, 3 / mark.width)) if mark.dashed else "-"  # in widths of the line
                points = zip(*mark.points, strict=True)
                axes.plot(*points, color=mark.color, linewidth=0.75 * mark.width, linestyle=style, zorder=order)
            elif isinstance(mark, Area):
                points = zip(*mark.points, strict=True)
                axes.fill(*points, color=mark.color, alpha=mark.opacity, linewidth=0, zorder=order)
            else:
                draw_line(axes, mark, order)
        content = io.BytesIO()
        plot.savefig(content, format=format, dpi=DOTS)
        return content.getvalue()


def import_matplotlib() -> Any:
    try:
        import matplotlib.font_manager
        import matplotlib.patches
    except ImportError as error:
        raise ConfigError(
            "PNG and PDF files require matplotlib, which is not installed",
            hint="run: pip install 'heedful[plot]', or choose a file name in .svg",
        ) from error
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # warns about missing font weights
    return matplotlib


def draw_line(axes: Any, line: Line, order: int) -> None:
    from matplotlib.path import Path as Curve

    middle = (line.start[0] + line.end[0]) / 2
    points = [line.start, (middle, line.start[1]), (middle, line.end[1]), line.end]
    axes.add_patch(
        import_matplotlib().patches.PathPatch(
            Curve(points, [Curve.MOVETO, *[Curve.CURVE4] * 3]),
            facecolor="none",
            edgecolor="#2462a8",
            linewidth=0.75 * (1 + 2.5 * line.strength),
            alpha=line.strength,
            zorder=order,
        )
    )


def draw_heatmap(axes: Any, heatmap: Heatmap, order: int) -> None:
    if not heatmap.values.numel():  # the model's output is empty
        return
    colors = [[color(value / heatmap.vmax, heatmap.palette) for value in row] for row in heatmap.values.tolist()]
    draw_colors(axes, heatmap, colors, order)


def draw_colors(axes: Any, mark: Heatmap | Picture, colors: Any, order: int) -> None:
    """Draw colors (rows, columns, 3) in the place of a mark, with a frame."""
    extent = (mark.x, mark.x + mark.width, mark.y + mark.height, mark.y)
    axes.imshow(colors, extent=extent, aspect="auto", interpolation="nearest", zorder=order)
    frame = import_matplotlib().patches.Rectangle(
        (mark.x, mark.y), mark.width, mark.height, fill=False, linewidth=0.4, zorder=order
    )
    axes.add_patch(frame)
    axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())


def draw_label(axes: Any, label: Label, order: int) -> None:
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
        zorder=order,
    )


def replace_missing_glyphs(text: str) -> str:
    """Replace characters without a glyph in any installed font by escape sequences."""
    available = characters()
    return "".join(mark if ord(mark) in available else mark.encode("ascii", "backslashreplace").decode() for mark in text)


@cache
def fonts() -> tuple[str, ...]:
    """Return the installed families, including fonts newer than matplotlib's font cache; it ships with the first."""
    manager = import_matplotlib().font_manager
    known = {Path(font.fname) for font in manager.fontManager.ttflist}
    for path in map(Path, manager.findSystemFonts()):
        if path not in known:
            with suppress(RuntimeError, OSError):  # unsupported font format
                manager.fontManager.addfont(path)
    installed = set(manager.fontManager.get_font_names())
    return tuple(name for name in FAMILIES if name in installed)


@cache
def characters() -> frozenset[int]:
    """Return the code points that the installed fonts can draw."""
    manager = import_matplotlib().font_manager
    return frozenset(mark for name in fonts() for mark in manager.get_font(manager.findfont(name)).get_charmap())
