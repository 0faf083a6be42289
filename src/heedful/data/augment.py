"""Augmentation of training images: each image is changed at random, by a pure function of (seed, epoch, index).

shift    move by up to this many pixels in each direction; what enters is black
flip     mirror from left to right, with probability 1/2
cutout   make a square of this many pixels at a random place black (DeVries and Taylor, 2017)
cutmix   replace a rectangle by that of another image, and its share of the label by the label of that image (Yun et al., 2019)
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.config.base import Config, Probability, ZeroOrSmallCount
from heedful.data.image_files import Pixels

DRAWS = 10  # random numbers of an image
DOWN, RIGHT, FLIP, TOP, LEFT, IS_MIXED, PARTNER, AREA, MIXED_TOP, MIXED_LEFT = range(DRAWS)

Indices = NDArray[np.int64]


class AugmentConfig(Config):
    """Random changes of training images; by default none."""

    shift: ZeroOrSmallCount = 0
    """Maximum shift in pixels, in each direction; 0: none."""
    flip: bool = False
    """Mirror half of the images from left to right."""
    cutout: ZeroOrSmallCount = 0
    """Height and width of a square that is made black, in pixels; 0: none."""

    @property
    def changes_images(self) -> bool:
        return bool(self.shift or self.flip or self.cutout)


class LabeledAugmentConfig(AugmentConfig):
    """Random changes of training images with labels; by default none."""

    cutmix: Probability = 0.0
    """Probability that a rectangle of an image is replaced by that of another image, whose label gets the share of its area."""


@lru_cache(maxsize=2)  # the present epoch, and the next one while it is prefetched
def epoch_draws(seed: int, epoch: int, images: int) -> NDArray[np.float64]:
    """Random numbers in [0, 1) of the first images of the training data: (images, DRAWS); a row does not depend on `images`."""
    # the order of the data uses the same key and a counter that starts at 0
    return np.random.Generator(np.random.Philox(key=[seed, epoch], counter=[0, 0, 0, 1])).random((images, DRAWS))


def augment(pixels: Pixels, draws: NDArray[np.float64], config: AugmentConfig) -> Pixels:
    """pixels (images, height, width, channels), draws (images, DRAWS) of these images."""
    if not config.changes_images:
        return pixels
    images, height, width = pixels.shape[:3]
    down, right = (to_integers(draws[:, at], 2 * config.shift + 1) - config.shift for at in (DOWN, RIGHT))
    rows = np.arange(height) + down[:, None]  # (images, height): the row that each row is taken from
    columns = np.arange(width) + right[:, None]  # (images, width)
    if config.flip:
        columns = np.where((draws[:, FLIP] < 0.5)[:, None], columns[:, ::-1], columns)
    is_inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None]
    if config.cutout:
        top, left = (to_integers(draws[:, at], size) - config.cutout // 2 for at, size in ((TOP, height), (LEFT, width)))
        is_inside &= ~inside_box(height, width, top, left, top + config.cutout, left + config.cutout)
    image = np.arange(images)[:, None, None]
    moved: Pixels = pixels[image, rows.clip(0, height - 1)[:, :, None], columns.clip(0, width - 1)[:, None]]
    moved *= is_inside[..., None]
    return moved


class Mixing(NamedTuple):
    """What CutMix replaces in each image."""

    partners: Indices  # (images,): index of the other image, among `examples`
    is_replaced: NDArray[np.bool_]  # (images, height, width)

    @property
    def shares(self) -> NDArray[np.float32]:
        """The fraction of each image that is replaced: (images,)."""
        shares: NDArray[np.float32] = self.is_replaced.mean((1, 2), dtype=np.float32)
        return shares


def plan_mixing(draws: NDArray[np.float64], probability: float, examples: int, height: int, width: int) -> Mixing:
    """The rectangles of CutMix: their areas are uniform in [0, 1] of the image, before they are cut at its edges."""
    side = np.sqrt(draws[:, AREA]) * (draws[:, IS_MIXED] < probability)  # (images,): relative to those of the image
    top = np.rint(draws[:, MIXED_TOP] * height - side * height / 2).astype(np.int64)
    left = np.rint(draws[:, MIXED_LEFT] * width - side * width / 2).astype(np.int64)
    bottom, right = top + np.rint(side * height).astype(np.int64), left + np.rint(side * width).astype(np.int64)
    return Mixing(to_integers(draws[:, PARTNER], examples), inside_box(height, width, top, left, bottom, right))


def inside_box(height: int, width: int, top: Indices, left: Indices, bottom: Indices, right: Indices) -> NDArray[np.bool_]:
    """Whether a pixel is inside the box of its image: (images, height, width)."""
    rows, columns = np.arange(height), np.arange(width)
    is_row = (rows >= top[:, None]) & (rows < bottom[:, None])  # (images, height)
    is_column = (columns >= left[:, None]) & (columns < right[:, None])  # (images, width)
    return is_row[:, :, None] & is_column[:, None]


def to_integers(draws: NDArray[np.float64], limit: int) -> Indices:
    """Uniform integers in [0, limit)."""
    return (draws * limit).astype(np.int64)
