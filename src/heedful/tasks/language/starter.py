"""`heed new language`."""

from __future__ import annotations

from heedful.tasks.base import Starter

RECIPE = """\
# Language modeling. Replace the three files by your own; about 10,000 lines and three minutes of two CPU cores are a start.

[data]
form = "text"
train = { file = "train.txt" }        # plain text or .gz; relative to this folder
valid = { file = "valid.txt" }        # one file: remove the three lines, and write file = "all.txt"
test = { file = "test.txt" }          # and split = [0.8, 0.1, 0.1]
block = 64                            # tokens of a training sequence
batch = 32                            # sequences of a batch

[task]
name = "language"
prompt = "In the morning"             # of the samples that a validation prints
sample_length = 20

[tokenizer]
kind = "bpe"
vocab = 4000

[model]
family = "gpt"
dim = 128
layers = 4
heads = 4
max_positions = 64
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
decay = 0.1

[training.schedule]
name = "cosine"
learning_rate = 2e-3
warmup = 200
floor = 0.1

[search]
method = "sample"
temperature = 0.8
"""

TRAIN = """\
In the morning the baker opens the shop before the street is awake.
The first bread comes out of the oven at five, and the air smells of warm flour.
A tall man with a red scarf buys two rolls every day and never says a word.
In the morning the gulls fly over the harbor and wait for the boats.
The boats come back at seven with silver fish in wooden boxes.
The old captain counts the boxes and writes the number in a small book.
In the evening the lamps along the river are lit one after another.
The children run home when the bell of the church strikes six.
A black cat sits in the window of the library and watches the rain.
The librarian gives the cat some milk and closes the heavy door.
At night the town is quiet, and only the clock on the square can be heard.
The baker goes to bed early because the night is short for a baker.
In the winter the river freezes and the boats stay in the harbor.
Then the captain sits in the bakery and tells stories of the sea.
The tall man with the red scarf listens and smiles.
In the spring the ice breaks with a noise like thunder.
The gulls return, the boats leave, and the captain is happy again.
In the summer the shop sells lemonade, and the children sit on the steps.
The cat sleeps in the sun between the flowers of the library.
In the autumn the leaves of the chestnut trees cover the square.
The librarian sweeps the steps in the morning and in the evening.
The wind brings the leaves back as soon as the librarian is inside.
Nobody in the town minds, because the leaves are as bright as gold.
In the morning the baker opens the shop again, and the day begins.
"""

VALID = """\
In the morning the captain buys bread and walks to the harbor.
The cat follows the captain because the captain smells of fish.
In the evening the librarian reads a story to the children on the steps.
The tall man with the red scarf waits until the story ends.
Then the lamps are lit, and the town is quiet.
The baker counts the rolls and closes the shop.
"""

TEST = """\
In the evening the captain writes a letter and closes the small book.
The gulls sleep on the boats, and the river is dark.
The librarian gives bread to the black cat and opens the window.
In the morning the children find silver ice on the steps of the library.
The bell of the church strikes seven, and the first boats leave the harbor.
The man with the red scarf says a word to the baker, and the baker smiles.
"""

STARTER = Starter(RECIPE, {"train.txt": TRAIN, "valid.txt": VALID, "test.txt": TEST}, "In the morning the cat")
