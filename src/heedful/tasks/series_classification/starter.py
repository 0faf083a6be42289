"""`heed new series_classification`: motions of two gaits."""

from __future__ import annotations

import json

import numpy as np

from heedful.data.gaits import COLUMNS, draw_gait
from heedful.tasks.base import Starter

RECIPE = """\
# Classification of series. Replace the tables by your own; about a hundred series of each label and three minutes of two CPU
# cores are a start.

[data]
form = "labeled_series"
train = { file = "train.csv" }        # comma-separated, plain or .gz; a row for each step; relative to this folder
valid = { file = "valid.csv" }
test = { file = "test.csv" }
sequence = "sequence"                 # the column that names the series of a row
label = "label"                       # the column of its label; all others are numbers
batch = 32                            # series

[task]
name = "series_classification"
normalization = "mean"                # of each series: where it starts does not matter

[tokenizer]
kind = "words"                        # of the labels; a series has no text
min_frequency = 1

[model]
family = "encoder"
features = 15                         # number of columns of numbers
dim = 32
layers = ["convolution", "self-attention"]
heads = 4
feed_forward = 64
kernel = 5
dropout = 0.1

[training]
minutes = 3                           # the schedule is shortened to fit
steps = 1000
save_every = 100
validate_every = 100
metric = "accuracy"

[training.schedule]
name = "cosine"
learning_rate = 2e-3
warmup = 50
"""
LABELS = ("walking", "running")
COUNTS = {"train": 40, "valid": 10, "test": 10}  # series
FRAMES = 24


def example_rows(split: int, count: int) -> str:
    """A table of series, the labels in turn."""
    lines = [",".join(("sequence", "label", *COLUMNS))]
    for at in range(count):
        label = LABELS[at % len(LABELS)]
        for frame in draw_gait(label, np.random.Generator(np.random.Philox(key=[split, at])), FRAMES).tolist():
            lines.append(",".join((str(at + 1), label, *(f"{value:.3f}" for value in frame))))
    return "".join(f"{line}\n" for line in lines)


FILES = {f"{split}.csv": example_rows(at, count) for at, (split, count) in enumerate(COUNTS.items())}
MOTION = draw_gait("running", np.random.Generator(np.random.Philox(key=[3, 0])), FRAMES)
INPUT = json.dumps({name: [round(float(value), 3) for value in MOTION[:, at]] for at, name in enumerate(COLUMNS)})

STARTER = Starter(RECIPE, FILES, INPUT)
