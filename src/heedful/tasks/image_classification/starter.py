"""`heed new image_classification`: a small folder of PNG images of colored shapes."""

from __future__ import annotations

import numpy as np

from heedful.data.image_files import ImageFormat, encode_png
from heedful.data.shapes import SHAPES, draw_shape
from heedful.tasks.base import Starter

RECIPE = """\
# Image classification. Replace the folder images by your own, with a folder for each label; a few hundred images of each
# label and some minutes of two CPU cores are a start.

[data]
form = "images"
train = { folder = "images" }         # images/LABEL/NAME.png, .jpg, …; relative to this folder; or { file = "paths.csv" }
split = [0.8, 0.1, 0.1]               # train, valid, test; or remove it and give [data.valid] and [data.test]
resize = true                         # your images may have any size
convert_channels = true               # and be in color, grayscale or transparent
batch = 32

[data.augment]
shift = 2                             # pixels
flip = true                           # remove it where left and right matter

[task]
name = "image_classification"

[tokenizer]
kind = "words"
min_frequency = 1

[model]
family = "vit"
image_size = [16, 16]                 # height and width; both are multiples of patch
patch = 4
dim = 64
layers = 4
heads = 4
dropout = 0.1

[training]
minutes = 3                           # the schedule is shortened to fit
steps = 3000
save_every = 250
validate_every = 250
metric = "accuracy"

[training.schedule]
name = "cosine"
learning_rate = 1e-3
warmup = 100
"""

COUNT = 40  # images of each shape
FORM = ImageFormat(16, 16, 3)


def example_images() -> dict[str, bytes]:
    """PNG files by name."""
    files = {}
    for at, name in enumerate(SHAPES):
        for number in range(1, COUNT + 1):
            draw = np.random.Generator(np.random.Philox(key=[at, number]))
            files[f"images/{name}/{number:02}.png"] = encode_png(draw_shape(name, FORM, draw))
    return files


STARTER = Starter(RECIPE, {}, "{folder}/images/circle/01.png", example_images)
