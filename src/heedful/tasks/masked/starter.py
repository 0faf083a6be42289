"""`heed new masked`."""

from __future__ import annotations

from heedful.tasks.base import Starter
from heedful.tasks.language.starter import TEST, TRAIN, VALID

RECIPE = """\
# Masked language modeling. Replace the three files by your own; about 10,000 lines and three
# minutes of two CPU cores are a start. Other tasks start from this run with training.init.

[data]
form = "text"
train = { file = "train.txt" }        # plain text or .gz; relative to this folder
valid = { file = "valid.txt" }        # one file: remove the three lines, and write file = "all.txt"
test = { file = "test.txt" }          # and split = [0.8, 0.1, 0.1]
block = 64                            # tokens of a training sequence
batch = 32                            # sequences of a batch

[task]
name = "masked"
rate = 0.15                           # fraction of the tokens that are hidden and predicted

[tokenizer]
kind = "wordpiece"
vocab = 6000
lowercase = true

[model]
family = "bert"
dim = 128
layers = 4
heads = 4
norm = "pre"
max_positions = 64
segments = 0
dropout = 0.1

[training]
minutes = 3                           # the schedule is shortened to fit
steps = 10000
save_every = 250
validate_every = 250

[training.optimizer]
name = "adamw"
betas = [0.9, 0.98]
epsilon = 1e-8
decay = 0.01

[training.schedule]
name = "linear"
learning_rate = 2e-3
warmup = 200
"""

STARTER = Starter(
    RECIPE, {"train.txt": TRAIN, "valid.txt": VALID, "test.txt": TEST}, "In the morning the [MASK] opens the shop."
)
