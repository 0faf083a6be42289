"""`heed new skip_thought`."""

from __future__ import annotations

from heedful.tasks.base import Starter
from heedful.tasks.language.starter import TEST, TRAIN, VALID

RECIPE = """\
# Skip-thought vectors of sentences. Replace the three files by your own, one sentence per line and an empty line between
# documents; about 10,000 lines and three minutes of two CPU cores are a start.

[data]
form = "text"
train = { file = "train.txt" }        # plain text or .gz; relative to this folder
valid = { file = "valid.txt" }
test = { file = "test.txt" }
block = 48                            # maximum tokens of a sentence
batch = 64                            # sentences of a batch

[task]
name = "skip_thought"

[tokenizer]
kind = "bpe"
vocab = 4000
lowercase = true

[model]
family = "encoder"
dim = 128
layers = ["gru"]                      # as published; or "lstm", "self-attention", "convolution"
dropout = 0.1

[training]
minutes = 3                           # the schedule is shortened to fit
steps = 10000
save_every = 250
validate_every = 250

[training.schedule]
name = "linear"
learning_rate = 2e-3
warmup = 100
"""

STARTER = Starter(
    RECIPE, {"train.txt": TRAIN, "valid.txt": VALID, "test.txt": TEST}, "In the morning the baker opens the shop."
)
