"""Augmentation of training images: each image is changed at random, by a pure function of (seed, epoch, index).

shift    move by up to this many pixels in each direction; what enters is black
flip     mirror from left to right, with probability 1/2
cutout   make a square of this many pixels at a random place black (DeVries and Taylor, 2017)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from heedful.config.base import Config, ZeroOrSmallCount
from heedful.data.image_files import Pixels


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


def augment(pixels: Pixels, indices: NDArray[np.int64], config: AugmentConfig, *, seed: int, epoch: int) -> Pixels:
    """pixels (images, height, width, channels); indices (images,): of the images in the training data."""
    if not config.changes_images:
        return pixels
    changed = np.empty_like(pixels)
    for at, index in enumerate(indices.tolist()):
        # the order of the data uses the same key and a counter that starts at 0
        draw = np.random.Generator(np.random.Philox(key=[seed, epoch], counter=[0, 0, 0, index + 1]))
        changed[at] = augment_one(pixels[at], config, draw)
    return changed


def augment_one(image: Pixels, config: AugmentConfig, draw: np.random.Generator) -> Pixels:
    """image (height, width, channels)."""
    height, width = image.shape[:2]
    if config.shift:
        down, right = draw.integers(0, 2 * config.shift + 1, 2)
        padded = np.pad(image, ((config.shift, config.shift), (config.shift, config.shift), (0, 0)))
        image = padded[down : down + height, right : right + width]
    if config.flip and draw.integers(2):
        image = image[:, ::-1]
    if config.cutout:
        image = image.copy()
        top, left = (int(draw.integers(size)) - config.cutout // 2 for size in (height, width))
        image[max(top, 0) : top + config.cutout, max(left, 0) : left + config.cutout] = 0
    return image
