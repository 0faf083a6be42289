"""An image beside copies of itself, each faded where a patch receives little attention; the patch with most is outlined.

opacity of a patch = FAINTEST + (1 - FAINTEST) x (weight - smallest) / (largest - smallest weight of all copies)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.inspection.drawing.figure import (
    EDGE,
    INK,
    QUIET,
    SMALL,
    TEXT,
    Figure,
    Label,
    Mark,
    Picture,
    Polyline,
    add_caption,
    text_width,
)
from heedful.inspection.drawing.text_heatmap import printable_token

SIDE = 120.0  # of an image, the longer one
GAP = 16.0
MOST = 6  # images in a row
FAINTEST = 0.12  # opacity of a patch without attention
OUTLINE = "#e07b24"


class ShadedImage(NamedTuple):
    name: str
    weights: Tensor  # (down, across)

    @property
    def top(self) -> tuple[int, int]:
        """Row and column of the patch with the largest weight, from 0."""
        at = int(self.weights.argmax())
        return at // self.weights.shape[1], at % self.weights.shape[1]


def weight_range(shaded: Sequence[ShadedImage]) -> tuple[float, float]:
    """The smallest and the largest weight."""
    return min(float(one.weights.min()) for one in shaded), max(float(one.weights.max()) for one in shaded)


def relative(weights: Tensor, low: float, high: float) -> Tensor:
    """0 for the smallest weight, 1 for the largest; all 1 if they are equal."""
    return (weights - low) / (high - low) if high > low else torch.ones_like(weights)


def image_figure(pixels: Tensor, shaded: Sequence[ShadedImage], title: str, captions: Sequence[str]) -> Figure:
    """pixels (height, width, channels), 0 to 255."""
    scale = SIDE / max(pixels.shape[:2])
    height, width = (size * scale for size in pixels.shape[:2])
    columns, (low, high) = min(MOST, len(shaded) + 1), weight_range(shaded)
    step_x = max(width, *(text_width(printable_token(one.name)) for one in shaded)) + GAP
    step_y, top = height + 2.2 * TEXT + GAP + SMALL, 2 * EDGE + 20
    marks: list[Mark] = [Label(EDGE, EDGE, title, 15)]
    for at, one in enumerate([None, *shaded]):
        x, y = EDGE + step_x * (at % columns), top + step_y * (at // columns)
        name = "image" if one is None else printable_token(one.name)
        marks.append(Label(x + width / 2, y - TEXT, name, anchor="middle", color=QUIET if one is None else INK))
        shown, tip = (pixels, name) if one is None else (fade(pixels, relative(one.weights, low, high)), name)
        marks.append(Picture(x, y, width, height, shown, tip))
        if one is None:
            continue
        (row, column), (down, across) = one.top, one.weights.shape
        left, right = x + width * column / across, x + width * (column + 1) / across
        above, below = y + height * row / down, y + height * (row + 1) / down
        marks.append(Polyline([(left, above), (right, above), (right, below), (left, below), (left, above)], OUTLINE, 2.0))
        text = f"{float(one.weights.max()):.2f} at {row + 1},{column + 1}"
        marks.append(Label(x + width / 2, y + height + SMALL, text, SMALL, "middle", color=QUIET))
    rows = -(-(len(shaded) + 1) // columns)
    full = max(EDGE + step_x * columns + EDGE, 2 * EDGE + text_width(title, 15))
    return add_caption(Figure(title, full, top + step_y * rows - GAP, marks), captions)


def fade(pixels: Tensor, share: Tensor) -> Tensor:
    """The image, mixed with white where the share of a patch (down, across), from 0 to 1, is small: (height, width,
    channels)."""
    high, wide = (size // count for size, count in zip(pixels.shape[:2], share.shape, strict=True))
    opacity = FAINTEST + (1 - FAINTEST) * share.repeat_interleave(high, 0).repeat_interleave(wide, 1)[..., None]
    return (255 - (255 - pixels.float()) * opacity).round().to(torch.uint8)
