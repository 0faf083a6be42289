"""`heed new tagging`."""

from __future__ import annotations

from heedful.tasks.base import Starter

RECIPE = """\
# Tagging. Replace the three files by your own; about 10,000 sentences and three minutes of two CPU cores are a start.

[data]
form = "tagged"
train = { file = "train.tsv" }        # word, tab, label; an empty line between sentences; or CoNLL-U (.conllu) with a column:
valid = { file = "valid.tsv" }        # column = "upos"
test = { file = "test.tsv" }
batch_tokens = 1024

[task]
name = "tagging"                      # labels are those of the training data
head_dropout = 0.3

[tokenizer]
kind = "spaces"                       # every word is one token; rare ones are known by their spelling alone
vocab = 20000
lowercase = true
min_frequency = 1                     # 2 or more for larger data

[model]
family = "encoder"
dim = 192
layers = ["lstm", "lstm"]
characters = 96                       # size of the features of a word's spelling
dropout = 0.3
word_dropout = 0.1

[training]
minutes = 3                           # the schedule is shortened to fit
steps = 5000
save_every = 250
validate_every = 250
metric = "accuracy"

[training.schedule]
name = "linear"
learning_rate = 4e-3
warmup = 100
"""

TRAIN = """\
The\tDET
old\tADJ
captain\tNOUN
buys\tVERB
fresh\tADJ
bread\tNOUN
.\tPUNCT

She\tPRON
reads\tVERB
a\tDET
long\tADJ
letter\tNOUN
.\tPUNCT

They\tPRON
walk\tVERB
to\tADP
the\tDET
harbor\tNOUN
.\tPUNCT

A\tDET
black\tADJ
cat\tNOUN
sleeps\tVERB
in\tADP
the\tDET
sun\tNOUN
.\tPUNCT

We\tPRON
sell\tVERB
warm\tADJ
rolls\tNOUN
in\tADP
the\tDET
morning\tNOUN
.\tPUNCT

The\tDET
children\tNOUN
run\tVERB
home\tADV
.\tPUNCT

He\tPRON
closes\tVERB
the\tDET
heavy\tADJ
door\tNOUN
.\tPUNCT

The\tDET
boats\tNOUN
come\tVERB
back\tADV
at\tADP
night\tNOUN
.\tPUNCT

I\tPRON
see\tVERB
a\tDET
tall\tADJ
man\tNOUN
with\tADP
a\tDET
red\tADJ
scarf\tNOUN
.\tPUNCT

The\tDET
gulls\tNOUN
fly\tVERB
over\tADP
the\tDET
river\tNOUN
.\tPUNCT

You\tPRON
write\tVERB
a\tDET
short\tADJ
story\tNOUN
.\tPUNCT

The\tDET
baker\tNOUN
opens\tVERB
the\tDET
small\tADJ
shop\tNOUN
early\tADV
.\tPUNCT
"""

VALID = """\
The\tDET
tall\tADJ
man\tNOUN
reads\tVERB
a\tDET
letter\tNOUN
.\tPUNCT

She\tPRON
opens\tVERB
the\tDET
heavy\tADJ
door\tNOUN
early\tADV
.\tPUNCT

The\tDET
cat\tNOUN
sleeps\tVERB
in\tADP
the\tDET
shop\tNOUN
.\tPUNCT

We\tPRON
walk\tVERB
home\tADV
at\tADP
night\tNOUN
.\tPUNCT
"""

TEST = """\
The\tDET
old\tADJ
baker\tNOUN
sells\tVERB
fresh\tADJ
rolls\tNOUN
.\tPUNCT

They\tPRON
come\tVERB
back\tADV
with\tADP
a\tDET
red\tADJ
scarf\tNOUN
.\tPUNCT

The\tDET
captain\tNOUN
writes\tVERB
a\tDET
long\tADJ
story\tNOUN
.\tPUNCT

I\tPRON
see\tVERB
the\tDET
small\tADJ
boats\tNOUN
in\tADP
the\tDET
harbor\tNOUN
.\tPUNCT
"""

STARTER = Starter(RECIPE, {"train.tsv": TRAIN, "valid.tsv": VALID, "test.tsv": TEST}, "The old cat opens the door .")
