"""Figures as SVG.

Tokens are escaped text. A matrix with names of rows and columns is drawn cell by cell, each with its value as tooltip; a
thumbnail, and an image, is an embedded PNG.

    as_svg    a file
    inline    an element of a page, in the text colors of the page
"""

from __future__ import annotations

import base64
import math

import numpy as np

from heedful.data.image_files import encode_png
from heedful.inspection.drawing.figure import (
    ACCENT,
    EDGE,
    FAINT,
    INK,
    QUIET,
    Area,
    Figure,
    Heatmap,
    Label,
    Line,
    Mark,
    Picture,
    Polyline,
    color,
)
from heedful.inspection.drawing.markup import escape

FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif"
DASHES = ' stroke-dasharray="5 3"'
MIN_WIDTH_SHARE = 0.82  # of its width, to which a page may shrink a figure
THEMED = {INK: "var(--ink)", QUIET: "var(--quiet)", ACCENT: "var(--accent)", FAINT: "var(--line)"}


def as_svg(figure: Figure) -> str:
    """Return the figure as an SVG file."""
    size = f'width="{figure.width:.0f}" height="{figure.height:.0f}" viewBox="0 0 {figure.width:.0f} {figure.height:.0f}"'
    label = f'role="img" aria-label="{escape(figure.title)}"'
    style = f'font-family="{FONTS}" style="background:#fff"'
    body = "\n".join(mark_to_svg(mark) for mark in figure.marks)
    background = '<rect width="100%" height="100%" fill="#fff"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {label} {style}>\n{background}\n{body}\n</svg>\n'


def inline(figure: Figure) -> str:
    """Return the figure as an SVG element without margins and background. Escaped texts cannot contain the quoted colors."""
    width = figure.width - 1.5 * EDGE
    style = f'style="width:{width:.0f}px;min-width:{MIN_WIDTH_SHARE * width:.0f}px"'
    size = f'{style} viewBox="{EDGE:.0f} 0 {width:.0f} {figure.height:.0f}"'
    body = "\n".join(mark_to_svg(mark) for mark in figure.marks)
    for plain, themed in THEMED.items():
        body = body.replace(f'"{plain}"', f'"{themed}"')
    return f'<svg {size} role="img" aria-label="{escape(figure.title)}" font-family="{FONTS}">\n{body}\n</svg>'


def mark_to_svg(mark: Mark) -> str:
    if isinstance(mark, Label):
        rotated = f' transform="rotate({-mark.rotation:.0f} {mark.x:.1f} {mark.y:.1f})"' if mark.rotation else ""
        place = f'x="{mark.x:.1f}" y="{mark.y:.1f}" dominant-baseline="central" text-anchor="{mark.anchor}"'
        return f'<text {place} font-size="{mark.size:g}" fill="{mark.color}"{rotated}>{escape(mark.text)}</text>'
    if isinstance(mark, Line):
        (x, y), (u, v) = mark.start, mark.end
        middle = (x + u) / 2
        path = f'd="M{x:.1f} {y:.1f}C{middle:.1f} {y:.1f} {middle:.1f} {v:.1f} {u:.1f} {v:.1f}"'
        stroke = f'stroke="#2462a8" stroke-width="{1 + 2.5 * mark.strength:.2f}" stroke-opacity="{mark.strength:.3f}"'
        return f'<path {path} fill="none" {stroke}><title>{escape(mark.tip)}</title></path>'
    if isinstance(mark, Polyline):
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in mark.points)
        stroke = f'stroke="{mark.color}" stroke-width="{mark.width:g}"{DASHES * mark.dashed}'
        return f'<path d="M{path}" fill="none" {stroke} stroke-linejoin="round"/>'
    if isinstance(mark, Area):
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in mark.points)
        filled = f'<path d="M{path}Z" fill="{mark.color}" fill-opacity="{mark.opacity:g}"'
        return f"{filled}><title>{escape(mark.tip)}</title></path>" if mark.tip else f"{filled}/>"
    if isinstance(mark, Picture):
        return embedded(mark, encode_png(mark.pixels.numpy().astype(np.uint8)), mark.tip)
    return thumbnail(mark) if mark.names is None else matrix(mark)


def matrix(heatmap: Heatmap) -> str:
    """Return one rectangle per value that is not NaN, and a frame."""
    assert heatmap.names is not None, "a heatmap without names is a thumbnail"
    rows, columns = heatmap.names
    width, height = heatmap.width / len(columns), heatmap.height / len(rows)
    parts = []
    for row, values in enumerate(heatmap.values.tolist()):
        for column, value in enumerate(values):
            if math.isnan(value):
                continue
            x, y = heatmap.x + width * column, heatmap.y + height * row
            place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
            tip = escape(f"{rows[row]}{heatmap.separator}{columns[column]}: {value:.4f}")
            parts.append(f'<rect {place} fill="{hex_color(value / heatmap.vmax, heatmap)}"><title>{tip}</title></rect>')
    frame = f'width="{heatmap.width:.1f}" height="{heatmap.height:.1f}" fill="none" stroke="{INK}" stroke-opacity=".25"'
    content = "\n".join(parts)
    return f'<g shape-rendering="crispEdges">\n{content}\n</g>\n<rect x="{heatmap.x:.1f}" y="{heatmap.y:.1f}" {frame}/>'


def thumbnail(heatmap: Heatmap) -> str:
    return embedded(heatmap, as_png(heatmap))


def embedded(mark: Heatmap | Picture, png: bytes, tip: str = "") -> str:
    """Return an image with a frame; tip: tooltip, empty: none."""
    place = f'x="{mark.x:.1f}" y="{mark.y:.1f}" width="{mark.width:.1f}" height="{mark.height:.1f}"'
    how = 'preserveAspectRatio="none" style="image-rendering:pixelated"'
    frame = f'<rect {place} fill="none" stroke="{INK}" stroke-opacity=".25"/>'
    image = f'<image {place} {how} href="data:image/png;base64,{base64.b64encode(png).decode()}"'
    return f"{image}><title>{escape(tip)}</title></image>{frame}" if tip else f"{image}/>{frame}"


def as_png(heatmap: Heatmap) -> bytes:
    """Return a PNG with one pixel per value."""
    colors = [[color(value / heatmap.vmax, heatmap.palette) for value in row] for row in heatmap.values.tolist()]
    return encode_png(np.array(colors, np.uint8))


def hex_color(share: float, heatmap: Heatmap) -> str:
    return "#{:02x}{:02x}{:02x}".format(*color(share, heatmap.palette))
