"""Toy images: a circle, cross, square or triangle of random color, size and place on a dark, noisy background.

Image n of a split is a pure function of (split, n, format), so a larger count only appends. Splits draw from different random
streams."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from heedful.data.image_files import ImageFormat, Pixels

SHAPES = ("circle", "cross", "square", "triangle")
STREAMS = {"train": 0, "valid": 1, "test": 2}
NOISE = 40  # highest value of the background


def draw_shape(name: str, form: ImageFormat, draw: np.random.Generator) -> Pixels:
    """One image."""
    radius = draw.uniform(0.22, 0.36) * min(form.height, form.width)
    center_y, center_x = (draw.uniform(radius, size - radius) for size in (form.height, form.width))
    color = draw.integers(110, 256, form.channels)
    pixels = draw_background(form, draw)
    pixels[covered(name, form, (center_y, center_x), radius)] = color
    return pixels.astype(np.uint8)


def draw_background(form: ImageFormat, draw: np.random.Generator) -> NDArray[np.int64]:
    return draw.integers(0, NOISE, (form.height, form.width, form.channels))


def covered(name: str, form: ImageFormat, center: tuple[float, float], radius: float) -> NDArray[np.bool_]:
    """Whether a pixel belongs to a shape, (height, width); center: y and x in pixels."""
    y = np.arange(form.height, dtype=np.float64)[:, None] + 0.5  # (height, 1)
    x = np.arange(form.width, dtype=np.float64)[None] + 0.5  # (1, width)
    down: NDArray[np.float64] = (y - center[0]) / radius
    right: NDArray[np.float64] = (x - center[1]) / radius
    return inside(name, down, right)


def inside(name: str, y: NDArray[np.float64], x: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether points belong to a shape of radius 1 around (0, 0)."""
    if name == "circle":
        return x**2 + y**2 <= 1
    if name == "square":
        return np.maximum(abs(x), abs(y)) <= 0.9
    if name == "triangle":
        return (abs(y) <= 1) & (abs(x) <= (y + 1) / 2)
    return (np.minimum(abs(x), abs(y)) <= 0.3) & (np.maximum(abs(x), abs(y)) <= 1)  # a cross


def draw_shapes(split: str, count: int, form: ImageFormat) -> tuple[Pixels, list[str]]:
    """The first `count` images of a split, (count, height, width, channels), and the label of each."""
    images = np.empty((count, form.height, form.width, form.channels), np.uint8)
    names = []
    for number in range(count):
        draw = np.random.Generator(np.random.Philox(key=[STREAMS[split], number]))
        names.append(SHAPES[int(draw.integers(len(SHAPES)))])
        images[number] = draw_shape(names[-1], form, draw)
    return images, names
