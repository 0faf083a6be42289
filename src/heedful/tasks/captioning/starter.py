"""`heed new captioning`: a small folder of PNG images of colored shapes, with a table of their captions."""

from __future__ import annotations

from functools import cache

from heedful.data.image_files import ImageFormat, encode_png
from heedful.data.shape_scenes import DrawnScene, draw_scenes
from heedful.tasks.base import Starter

RECIPE = """\
# Captioning. Replace captions.csv and the folder images by your own; a few thousand images and an hour of two CPU cores, or
# some minutes of a GPU, are a start. 200 images, as here, teach the form of captions and little more.

[data]
form = "captions"
train = { file = "captions.csv" }     # the columns path and caption; relative to this folder; or { folder = "pictures" }
split = [0.8, 0.1, 0.1]               # train, valid, test; or remove it and give [data.valid] and [data.test]
resize = true                         # your images may have any size
convert_channels = true               # and be in color, grayscale or transparent
batch = 32

[task]
name = "captioning"

[tokenizer]
kind = "words"                        # for larger data: kind = "bpe", vocab = 8000
min_frequency = 1

[model]
family = "vision_encoder_decoder"
image_size = [24, 24]                 # height and width; both are multiples of patch
patch = 4
dim = 64
layers = 2
heads = 4
dropout = 0.1

[training]
minutes = 3                           # the schedule is shortened to fit
steps = 3000
save_every = 250
validate_every = 250
metric = "bleu"

[training.schedule]
name = "cosine"
learning_rate = 1e-3
warmup = 100
"""

COUNT = 200
FORM = ImageFormat(24, 24, 3)


@cache
def scenes() -> list[DrawnScene]:
    return list(draw_scenes("train", COUNT, FORM))


def example_images() -> dict[str, bytes]:
    """PNG files by name, and the table of their captions."""
    files = {f"images/{number:03}.png": encode_png(drawn.pixels) for number, drawn in enumerate(scenes(), start=1)}
    rows = (f"{name},{drawn.scene.caption}\n" for name, drawn in zip(files, scenes(), strict=True))
    return {"captions.csv": ("path,caption\n" + "".join(rows)).encode()} | files


STARTER = Starter(RECIPE, {}, "{folder}/images/001.png", example_images)
