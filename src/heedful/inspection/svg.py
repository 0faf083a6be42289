"""A sketch as SVG: text that any browser or editor opens, drawn by nobody but us.

Tokens are text and are escaped as such. A matrix whose rows and columns have names is drawn cell by cell, each with its value
as a tip; a thumbnail is one small PNG inside the file.

    as_svg    a file
    inline    a part of a page, in the page's own colors of ink
"""

from __future__ import annotations

import base64
import math
import struct
import zlib

from heedful.inspection.figure import ACCENT, EDGE, FAINT, INK, QUIET, Figure, Heatmap, Label, Line, Mark, Polyline, color
from heedful.inspection.markup import escape

FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif"
MIN_WIDTH_SHARE = 0.82  # of its width, to which a page may shrink it
THEMED = {INK: "var(--ink)", QUIET: "var(--quiet)", ACCENT: "var(--accent)", FAINT: "var(--line)"}


def as_svg(figure: Figure) -> str:
    size = f'width="{figure.width:.0f}" height="{figure.height:.0f}" viewBox="0 0 {figure.width:.0f} {figure.height:.0f}"'
    named = f'role="img" aria-label="{escape(figure.title)}"'
    style = f'font-family="{FONTS}" style="background:#fff"'
    body = "\n".join(mark_to_svg(mark) for mark in figure.marks)
    ground = '<rect width="100%" height="100%" fill="#fff"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {named} {style}>\n{ground}\n{body}\n</svg>\n'


def inline(figure: Figure) -> str:
    """Without edges and without a ground; a text cannot hold the quotes that colors stand in."""
    width = figure.width - 1.5 * EDGE
    size = f'style="width:{width:.0f}px;min-width:{MIN_WIDTH_SHARE * width:.0f}px" viewBox="{EDGE:.0f} 0 {width:.0f} {figure.height:.0f}"'
    body = "\n".join(mark_to_svg(mark) for mark in figure.marks)
    for plain, themed in THEMED.items():
        body = body.replace(f'"{plain}"', f'"{themed}"')
    return f'<svg {size} role="img" aria-label="{escape(figure.title)}" font-family="{FONTS}">\n{body}\n</svg>'


def mark_to_svg(mark: Mark) -> str:
    if isinstance(mark, Label):
        turned = f' transform="rotate({-mark.rotation:.0f} {mark.x:.1f} {mark.y:.1f})"' if mark.rotation else ""
        place = f'x="{mark.x:.1f}" y="{mark.y:.1f}" dominant-baseline="central" text-anchor="{mark.anchor}"'
        return f'<text {place} font-size="{mark.size:g}" fill="{mark.color}"{turned}>{escape(mark.text)}</text>'
    if isinstance(mark, Line):
        (x, y), (u, v) = mark.start, mark.end
        middle = (x + u) / 2
        path = f'd="M{x:.1f} {y:.1f}C{middle:.1f} {y:.1f} {middle:.1f} {v:.1f} {u:.1f} {v:.1f}"'
        stroke = f'stroke="#2462a8" stroke-width="{1 + 2.5 * mark.strength:.2f}" stroke-opacity="{mark.strength:.3f}"'
        return f'<path {path} fill="none" {stroke}><title>{escape(mark.tip)}</title></path>'
    if isinstance(mark, Polyline):
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in mark.points)
        return f'<path d="M{path}" fill="none" stroke="{mark.color}" stroke-width="{mark.width:g}" stroke-linejoin="round"/>'
    return thumbnail(mark) if mark.names is None else matrix(mark)


def matrix(cells: Heatmap) -> str:
    """One rectangle for each value that is a number, without seams, and a frame."""
    assert cells.names is not None, "whoever has no names is a thumbnail"
    rows, names = cells.names
    wide, tall = cells.width / len(names), cells.height / len(rows)
    parts = []
    for row, values in enumerate(cells.values.tolist()):
        for column, value in enumerate(values):
            if math.isnan(value):
                continue
            place = f'x="{cells.x + wide * column:.1f}" y="{cells.y + tall * row:.1f}" width="{wide:.1f}" height="{tall:.1f}"'
            tip = escape(f"{rows[row]}{cells.separator}{names[column]}: {value:.4f}")
            parts.append(f'<rect {place} fill="{hex_color(value / cells.vmax, cells)}"><title>{tip}</title></rect>')
    frame = f'width="{cells.width:.1f}" height="{cells.height:.1f}" fill="none" stroke="{INK}" stroke-opacity=".25"'
    inside = "\n".join(parts)
    return f'<g shape-rendering="crispEdges">\n{inside}\n</g>\n<rect x="{cells.x:.1f}" y="{cells.y:.1f}" {frame}/>'


def thumbnail(cells: Heatmap) -> str:
    place = f'x="{cells.x:.1f}" y="{cells.y:.1f}" width="{cells.width:.1f}" height="{cells.height:.1f}"'
    data = base64.b64encode(as_png(cells)).decode()
    how = 'preserveAspectRatio="none" style="image-rendering:pixelated"'
    frame = f'<rect {place} fill="none" stroke="{INK}" stroke-opacity=".25"/>'
    return f'<image {place} {how} href="data:image/png;base64,{data}"/>{frame}'


def as_png(cells: Heatmap) -> bytes:
    """The smallest PNG there is: one pixel for each value."""
    rows = cells.values.tolist()
    lines = b"".join(b"\0" + bytes(part for value in row for part in color(value / cells.vmax, cells.palette)) for row in rows)

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b"")


def hex_color(share: float, cells: Heatmap) -> str:
    return "#{:02x}{:02x}{:02x}".format(*color(share, cells.palette))
