"""`heed new translation`."""

from __future__ import annotations

from heedful.tasks.base import Starter

RECIPE = """\
# Translation. Replace the three files by your own; about 10,000 sentence pairs and three minutes of two CPU cores are a start.

[data]
train = { tsv = "train.tsv" }         # source TAB target, plain or .gz; relative to this folder
valid = { tsv = "valid.tsv" }         # two aligned files: { source = "valid.en", target = "valid.it" }
test = { tsv = "test.tsv" }           # JSON lines: { jsonl = "test.jsonl", fields = ["en", "it"] }
# one file: remove valid and test, and write split = [0.8, 0.1, 0.1]
batch_tokens = 1024                   # tokens of a batch, on either side

[task]
validation_sentences = 100            # translated in every validation

[tokenizer]
kind = "bpe"
vocab = 4000

[model]
family = "transformer"
dim = 128
layers = 3
heads = 4
feed_forward = 512
norm = "pre"
dropout = 0.2

[training]
minutes = 3                           # the schedule is shortened to fit
steps = 10000
save_every = 250
validate_every = 500
average = "last"                      # the result is the mean of the last checkpoints
average_count = 3
metric = "bleu"

[training.schedule]
name = "cosine"
learning_rate = 3e-3
warmup = 200

[search]
beam = 5
length_penalty = 1.0
"""

TRAIN = """\
The cat sleeps.\tIl gatto dorme.
The dog runs.\tIl cane corre.
The girl reads a book.\tLa ragazza legge un libro.
The boy eats an apple.\tIl ragazzo mangia una mela.
I drink water.\tIo bevo acqua.
We drink coffee.\tNoi beviamo caffè.
The house is big.\tLa casa è grande.
The garden is small.\tIl giardino è piccolo.
The cat drinks milk.\tIl gatto beve latte.
The dog eats bread.\tIl cane mangia pane.
The girl sees the sea.\tLa ragazza vede il mare.
The boy sees the moon.\tIl ragazzo vede la luna.
I read a letter.\tIo leggo una lettera.
We write a letter.\tNoi scriviamo una lettera.
The book is new.\tIl libro è nuovo.
The car is red.\tLa macchina è rossa.
The sky is blue.\tIl cielo è blu.
The sun is warm.\tIl sole è caldo.
The girl runs in the garden.\tLa ragazza corre nel giardino.
The boy sleeps in the house.\tIl ragazzo dorme nella casa.
I see the dog.\tIo vedo il cane.
We see the cat.\tNoi vediamo il gatto.
The teacher opens the window.\tIl maestro apre la finestra.
The teacher closes the door.\tIl maestro chiude la porta.
"""

VALID = """\
The boy reads a book.\tIl ragazzo legge un libro.
The cat runs.\tIl gatto corre.
The girl eats bread.\tLa ragazza mangia pane.
The house is new.\tLa casa è nuova.
"""

TEST = """\
The girl drinks milk.\tLa ragazza beve latte.
The dog sleeps.\tIl cane dorme.
The garden is big.\tIl giardino è grande.
I see the moon.\tIo vedo la luna.
"""

STARTER = Starter(RECIPE, {"train.tsv": TRAIN, "valid.tsv": VALID, "test.tsv": TEST}, "The girl sees the dog.")
