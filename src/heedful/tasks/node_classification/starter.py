"""`heed new node_classification`: people of two clubs, with two noisy numbers each, who mostly know their own club."""

from __future__ import annotations

import math

from heedful.tasks.base import Starter

RECIPE = """\
# Node classification. Replace nodes.csv and edges.csv by your own; a few hundred labeled nodes and minutes of two CPU cores
# are a start.

[data]
form = "graphs"
train = { nodes = "nodes.csv", edges = "edges.csv" }   # comma- or tab-separated, plain or .gz; relative to this folder
node = "node"                         # column of the names; edges.csv has the columns source and target
label = "label"                       # column of the labels; all other columns are features, numbers
split_column = "split"                # column with train, valid or test; or parts = [0.6, 0.2, 0.2]
directed = false                      # true: a node attends to the sources of its edges only

[task]
name = "node_classification"

[tokenizer]
kind = "words"                        # of the labels; a graph has no text
min_frequency = 1

[model]
family = "encoder"
features = 2                          # number of columns of features; 0: the names of the nodes are tokens (tokenizer "spaces")
dim = 32
layers = ["self-attention", "self-attention"]     # as many as edges between a node and what it depends on
heads = 2
feed_forward = 64
dropout = 0.2

[training]
minutes = 3                           # the schedule is shortened to fit
steps = 300
save_every = 50
validate_every = 25
metric = "accuracy"

[training.schedule]
name = "cosine"
learning_rate = 3e-3
warmup = 20
"""
NODES = 60


def looks_random(at: int) -> float:
    """A number between 0 and 1 that depends on `at` in no simple way."""
    return math.sin(at * at + 1.0) * 43758.5453 % 1.0


def example_nodes() -> list[tuple[str, str, str, str, str]]:
    """Name, label, two features and split of each node; every other one belongs to the second club."""
    splits = ("train", "train", "train", "valid", "test")
    rows = []
    for at in range(NODES):
        side = 1 if at % 2 else -1
        x, y = (side * 0.6 + 3 * (looks_random(3 * at + k) - 0.5) for k in range(2))
        rows.append((f"p{at}", "tennis" if at % 2 else "chess", f"{x:.2f}", f"{y:.2f}", splits[at // 2 % 5]))
    return rows


def example_edges() -> list[tuple[str, str]]:
    """Five edges of each node, four to its own club."""
    edges = []
    for at in range(NODES):
        for k in range(5):
            other = int(looks_random(7 * at + k) * NODES)
            other -= (other - at) % 2 if k else 0  # the first may be of either club
            if other != at:
                edges.append((f"p{at}", f"p{other % NODES}"))
    return edges


def as_table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    return "".join(f"{','.join(row)}\n" for row in [header, *rows])


FILES = {
    "nodes.csv": as_table(("node", "label", "x", "y", "split"), [*example_nodes()]),
    "edges.csv": as_table(("source", "target"), [*example_edges()]),
}
INPUT = (
    '{"nodes": [{"node": "a", "x": 0.9, "y": 0.4}, {"node": "b", "x": 0.2, "y": 0.8}, {"node": "c", "x": -1.1, "y": -0.3}], '
    '"edges": [["a", "b"]]}'
)

STARTER = Starter(RECIPE, FILES, INPUT)
