"""`heed new tagging`."""

from __future__ import annotations

from heedful.tasks.base import Starter

RECIPE = """\
# Tagging: a label for each word. Replace examples.tsv by your own file; about 10,000 sentences and three minutes of two CPU
# cores are a start.

[data]
form = "tagged"
train = { file = "examples.tsv" }     # word TAB label, an empty line between sentences; or .conllu; relative to this folder
split = [0.8, 0.1, 0.1]               # train, valid, test; or remove it and give [data.valid] and [data.test]
batch_tokens = 768

[task]
name = "tagging"                      # the labels are those of the training data
head_dropout = 0.4

[tokenizer]
kind = "spaces"
vocab = 20000
lowercase = true
min_frequency = 2

[model]
family = "encoder"
dim = 256
layers = ["lstm"]
norm = "pre"
characters = 128                      # the spelling of words, for those that are rare or unknown
dropout = 0.4
word_dropout = 0.1

[training]
minutes = 3                           # the schedule is shortened to fit
steps = 4000
save_every = 250
validate_every = 250
metric = "accuracy"

[training.schedule]
name = "linear"
learning_rate = 4e-3
warmup = 200
"""

EXAMPLES = """\
The\tDET
cat\tNOUN
sleeps\tVERB
.\tPUNCT

Dogs\tNOUN
run\tVERB
fast\tADV
.\tPUNCT

She\tPRON
reads\tVERB
a\tDET
long\tADJ
book\tNOUN
.\tPUNCT

We\tPRON
saw\tVERB
the\tDET
old\tADJ
harbor\tNOUN
.\tPUNCT

Anna\tPROPN
lives\tVERB
in\tADP
Rome\tPROPN
.\tPUNCT

He\tPRON
often\tADV
walks\tVERB
home\tADV
.\tPUNCT

The\tDET
red\tADJ
car\tNOUN
stopped\tVERB
.\tPUNCT

Birds\tNOUN
sing\tVERB
in\tADP
the\tDET
garden\tNOUN
.\tPUNCT

I\tPRON
bought\tVERB
two\tNUM
tickets\tNOUN
.\tPUNCT

They\tPRON
never\tADV
eat\tVERB
meat\tNOUN
.\tPUNCT

Peter\tPROPN
wrote\tVERB
a\tDET
letter\tNOUN
to\tADP
Maria\tPROPN
.\tPUNCT

The\tDET
small\tADJ
boat\tNOUN
left\tVERB
at\tADP
noon\tNOUN
.\tPUNCT

Is\tAUX
the\tDET
door\tNOUN
open\tADJ
?\tPUNCT

You\tPRON
can\tAUX
swim\tVERB
here\tADV
.\tPUNCT

Three\tNUM
men\tNOUN
and\tCCONJ
a\tDET
dog\tNOUN
waited\tVERB
.\tPUNCT

The\tDET
soup\tNOUN
is\tAUX
hot\tADJ
,\tPUNCT
but\tCCONJ
good\tADJ
.\tPUNCT

It\tPRON
rained\tVERB
all\tDET
night\tNOUN
.\tPUNCT

My\tPRON
sister\tNOUN
plays\tVERB
the\tDET
piano\tNOUN
well\tADV
.\tPUNCT

Children\tNOUN
laughed\tVERB
loudly\tADV
.\tPUNCT

London\tPROPN
has\tVERB
many\tADJ
parks\tNOUN
.\tPUNCT

A\tDET
quiet\tADJ
man\tNOUN
opened\tVERB
the\tDET
window\tNOUN
.\tPUNCT

Nobody\tPRON
knew\tVERB
the\tDET
answer\tNOUN
.\tPUNCT

He\tPRON
will\tAUX
come\tVERB
with\tADP
five\tNUM
friends\tNOUN
.\tPUNCT

The\tDET
train\tNOUN
from\tADP
Paris\tPROPN
was\tAUX
late\tADJ
.\tPUNCT
"""

STARTER = Starter(RECIPE, {"examples.tsv": EXAMPLES}, "The old man saw two birds .")
