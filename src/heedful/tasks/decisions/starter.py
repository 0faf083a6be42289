"""`heed new decisions`: episodes of the generated grid world as a table."""

from __future__ import annotations

import csv
import io

from heedful.data.gridworld import draw_episodes, name_of
from heedful.tasks.base import Starter

RECIPE = """\
# Decisions. Replace episodes.csv by your own; some thousand episodes and three minutes of two CPU cores are a start.

[data]
form = "trajectories"
train = { file = "episodes.csv" }     # .csv, .tsv or .jsonl, plain or .gz; relative to this folder
split = [0.8, 0.1, 0.1]               # train, valid, test, by episode; or remove it and give [data.valid] and [data.test]
states = ["cell"]                     # columns of the state, with the columns episode, step, action and reward beside them
categorical = ["cell"]                # those of them that are names; the others are numbers
world = 0                             # the grid world of the example, for roll-outs; remove it for your own episodes
batch = 32

[task]
name = "decisions"
condition = "return"                  # "none": no desired return, the behavior of the data is cloned
context = 30                          # steps that the model attends to

[tokenizer]
kind = "words"                        # of the names of the actions; episodes have no text

[model]
family = "gpt"
inputs = "vectors"
dim = 64
layers = 2
heads = 4
position = "none"                     # each step of an episode has an embedding of its own
dropout = 0.1

[training]
minutes = 3                           # the schedule is shortened to fit
steps = 3000
save_every = 250
validate_every = 250
metric = "loss"

[training.schedule]
name = "cosine"
learning_rate = 1e-3
warmup = 100
"""
EPISODES = 120


def example_rows() -> str:
    """Episodes of the behavior policy in the grid world 0."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["episode", "step", "cell", "action", "reward"])
    for number, episode in enumerate(draw_episodes(0, "train", EPISODES), start=1):
        for step, (cell, action, reward) in enumerate(zip(*episode, strict=True), start=1):
            writer.writerow([number, step, name_of(cell), action, f"{reward:g}"])
    return out.getvalue()


INPUT = '{"desired": 9, "states": ["d5", "e5"], "actions": ["right"], "rewards": [-0.2]}'
STARTER = Starter(RECIPE, {"episodes.csv": example_rows()}, INPUT)
