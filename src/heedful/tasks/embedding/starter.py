"""`heed new embedding`."""

from __future__ import annotations

from heedful.tasks.base import Starter

RECIPE = """\
# Sentence embeddings. Replace examples.csv by your own file; about 10,000 pairs and three minutes of two CPU cores are a start.

[data]
form = "similar"
train = { file = "examples.csv" }     # .csv, .tsv or .jsonl, plain or .gz; relative to this folder
split = [0.6, 0.2, 0.2]               # train, valid, test; or remove it and give [data.valid] and [data.test]
columns = ["text", "similar"]         # two texts that are similar; further columns: texts that look similar but are not
max_length = 64                       # tokens; longer texts are truncated
batch = 64                            # the other rows of a batch are negatives: larger is better

[task]
name = "embedding"
temperature = 0.05

[tokenizer]
kind = "bpe"
vocab = 6000
lowercase = true

[model]
family = "bert"                       # to start from a run of task masked: training.init, with the [model] of that run
dim = 128
layers = 1
heads = 4
norm = "pre"
max_positions = 64
segments = 0
dropout = 0.1

[training]
minutes = 3                           # the schedule is shortened to fit
steps = 5000
save_every = 250
validate_every = 250
metric = "mrr"

[training.schedule]
name = "linear"
learning_rate = 2e-3
warmup = 100
"""

EXAMPLES = """\
text,similar
How do I change my password?,Where can I set a new password?
When does the shop open?,What are your opening hours?
"My parcel has not arrived, what now?",I am still waiting for my order.
Can I pay by card?,Do you accept credit cards?
How can I cancel my order?,I want to take back what I ordered.
Is there parking nearby?,Where can I leave my car?
Do you ship to other countries?,Can you send a package abroad?
The zipper is broken.,My jacket does not close anymore.
Which size fits me?,How do I find the right size?
May I bring my dog?,Are pets allowed?
How long is the guarantee?,For how many years is a repair free?
I forgot my user name.,What was my login again?
Where is the next station?,How do I get there by train?
Can I speak to a person?,Please connect me with your staff.
Is breakfast included?,Do I have to pay extra for breakfast?
I would like a receipt.,Can you send me an invoice?
The light does not turn on.,My lamp stays dark.
How do I clean the filter?,What is the best way to wash the filter?
Do you have vegetarian dishes?,What can I eat without meat?
Can I change my address?,I have moved to another street.
When will it be in stock again?,How soon can I buy it again?
Is the water safe to drink?,Can I drink from the tap?
The screen is black.,My display shows nothing.
How do I delete my account?,Please remove all my data.
"""

STARTER = Starter(RECIPE, {"examples.csv": EXAMPLES}, "Where do I find my invoice?")
