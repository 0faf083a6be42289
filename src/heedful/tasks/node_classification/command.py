"""`heed classify-nodes`, and the options of `heed predict` and `heed evaluate` for node classification."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from heedful.config.bounds import MAX_RESAMPLES
from heedful.tasks.commands import Command, Option


@dataclass(frozen=True)
class PredictOptions:
    nodes: Annotated[Path | None, Option("Table of nodes, instead of graphs as lines of JSON.")] = None
    edges: Annotated[Path | None, Option("Table of edges, with --nodes. Default: there are none.")] = None


@dataclass(frozen=True)
class EvaluateOptions:
    bootstrap: Annotated[
        int, Option("Bootstrap resamples for the 95% interval; 0: no interval.", minimum=0, maximum=MAX_RESAMPLES)
    ] = 1000
    baselines: Annotated[
        bool, Option("Also score the most frequent label, a linear model of the features, and label propagation.")
    ] = False
    output: Annotated[Path | None, Option("Write a line of JSON for each node: gold, predicted, probabilities.")] = None


COMMAND = Command(
    "classify-nodes",
    "Predict the label of each node of each graph.\n\n"
    'A graph is a line of JSON, {"nodes": [{"node": "a", "x": 0.5}, …], "edges": [["a", "b"], …]}, or with --nodes and --edges '
    "two tables like those of the training data. Prints a node and its label in each line. --json prints one object per graph, "
    "with probabilities.",
    "Files with a graph in each line, plain or .gz; - for standard input. Default: -.",
    PredictOptions,
    EvaluateOptions,
    search=(),
)
