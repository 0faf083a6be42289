"""`heed new classification`."""

from __future__ import annotations

from heedful.tasks.base import Starter

RECIPE = """\
# Classification. Replace examples.csv by your own file; about 10,000 rows and three minutes of two CPU cores are a start.

[data]
form = "labeled"
train = { file = "examples.csv" }     # .csv, .tsv or .jsonl, plain or .gz; relative to this folder
split = [0.8, 0.1, 0.1]               # train, valid, test; or remove it and give [data.valid] and [data.test]
label = "label"                       # name of the column of the label
texts = ["text"]                      # names of the columns of the texts
max_length = 128                      # tokens; longer texts are truncated
batch = 32

[task]
name = "classification"
labels = ["positive", "negative"]     # all labels of your file

[tokenizer]
kind = "bpe"
vocab = 8000
lowercase = true

[model]
family = "gpt"
dim = 128
layers = 2
heads = 4
max_positions = 128
dropout = 0.2

[training]
minutes = 3                           # the schedule is shortened to fit
steps = 10000
save_every = 250
validate_every = 250
metric = "accuracy"

[training.schedule]
name = "linear"
learning_rate = 1e-3
warmup = 200
"""

EXAMPLES = """\
text,label
"The soup was hot, fresh and full of flavor.",positive
Our waiter forgot the drinks twice.,negative
A quiet room with a wonderful view of the lake.,positive
"The bed was hard, and the pillow smelled of smoke.",negative
I would come back tomorrow if I could.,positive
We waited an hour for cold pasta.,negative
The staff found my lost scarf and mailed it to me.,positive
Nobody answered the phone all day.,negative
"Best coffee in town, and the cake is even better.",positive
The shower leaked and flooded the floor.,negative
Everything arrived a day early and well packed.,positive
The box was empty when it came.,negative
Such a friendly team!,positive
"They said ""sold out"" although the shelf was full.",negative
The bread is baked while you watch.,positive
My order was wrong for the third time.,negative
"Clean, bright and close to the station.",positive
The music was so loud that we left.,negative
They repaired my bicycle in ten minutes.,positive
"The jacket lost its color in the first wash, which is a shame.",negative
A perfect evening from start to finish.,positive
The screen broke after one week.,negative
Children are welcome and get their own menu.,positive
They never sent the refund.,negative
The garden alone is worth the trip.,positive
The fish tasted of nothing at all.,negative
Helpful advice without any pressure to buy.,positive
The heating did not work in January.,negative
It fits as if it had been made for me.,positive
The manual is only in a language that I cannot read.,negative
"Fast, polite and cheap.",positive
The paint came off in my hands.,negative
We laughed the whole way home.,positive
The door did not lock.,negative
My grandmother loved every minute.,positive
"Too small, too dark, too expensive.",negative
The battery lasts for days.,positive
The website charged me twice.,negative
A simple meal made with great care.,positive
The chair wobbles on every floor.,negative
"""

STARTER = Starter(RECIPE, {"examples.csv": EXAMPLES}, "The room was bright and clean.")
