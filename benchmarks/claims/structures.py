"""Claims about inputs that are no sequences: sets and graphs.

sets          the largest number of a set: without positions, a pooled output does not depend on the order
communities   groups of a graph, with noisy features: attention along edges, compared with the same model without edges
reachable     two paths, one with a marked node at its end: the label of a node is whether it is on the path of the mark. The
              other path looks the same to a node that is farther from the mark than the model has layers
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

import heedful
from claims import SEEDS, Evidence, by_seed
from heedful.config.toml import write_value
from heedful.data.graph_toys import LONGEST
from heedful.data.graphs import read_graphs
from heedful.data.toys import largest, sample
from heedful.tasks.node_classification.command import EvaluateOptions

SHUFFLED = 200  # sets of the test data
DIAMETER = LONGEST - 1  # of a path
PATHS = {  # options of a model of paths
    "data.builtin": "reachable",
    "data.counts": {"train": 2000, "valid": 100, "test": 500},
    "data.batch": 32,
    "training.steps": 1000,
    "training.save_every": 1000,
    "training.validate_every": 1000,
    "training.schedule.warmup": 100,
}


def train(recipe: str, folder: Path, options: Mapping[str, Any]) -> Any:
    """A trained predictor, on one thread."""
    changes = [f"{name}={write_value(value)}" for name, value in ({"training.threads": 1} | dict(options)).items()]
    heedful.train(recipe, changes, run=folder, device="cpu", console=Console(quiet=True))
    return heedful.load(folder)


def sets(folder: Path) -> Evidence:
    texts = [example.text for example in sample(largest, "test", SHUFFLED)]
    rows, changes = [], []
    for seed in SEEDS:
        without = train("toy-set", folder / f"none-{seed}", {"seed": seed})
        ordered = train("toy-set", folder / f"learned-{seed}", {"seed": seed, "model.position": "learned"})
        changes.append([largest_change(one, texts, seed) for one in (without, ordered)])
        rows.append({"accuracy": without.evaluate("test")["accuracy"], "with positions": ordered.evaluate("test")["accuracy"]})
    figures = by_seed(rows) | {
        name: ", ".join(f"{change[at]:.1e}" for change in changes)
        for at, name in enumerate(("change by another order", "change with positions"))
    }
    invariant = all(none <= 1e-6 for none, _ in changes)
    return Evidence(figures, invariant and all(row["accuracy"] >= 0.95 for row in rows))


def largest_change(classifier: heedful.Classifier, texts: list[str], seed: int) -> float:
    """The largest difference between the probabilities of a set in two orders."""
    draw = random.Random(seed)
    orders = [" ".join(draw.sample(words := text.split(), len(words))) for text in texts]
    pairs = zip(classifier.predict_proba(texts), classifier.predict_proba(orders), strict=True)
    return max(float(abs(first[label] - second[label])) for first, second in pairs for label in first)


def communities(folder: Path) -> Evidence:
    rows = []
    for seed in SEEDS:
        row = {}
        for attend in ("neighbors", "self", "all"):
            classifier = train("toy-graph", folder / f"{attend}-{seed}", {"seed": seed, "task.attend": attend})
            options = EvaluateOptions(bootstrap=0, baselines=attend == "neighbors")
            found = classifier.report("test", options, load=heedful.load, search=classifier.search_config)
            row[f"attends to {attend}"] = found.figures["accuracy"]
            row |= {name: figures["accuracy"] for name, figures in found.baselines.items()}
        rows.append(row)
    ours, margins = "attends to neighbors", {"label propagation": 0.0, "attends to all": -1.0}  # the last is shown only
    holds = all(row[ours] > value + margins.get(name, 0.1) for row in rows for name, value in row.items() if name != ours)
    return Evidence(by_seed(rows), holds)


def reachable(folder: Path) -> Evidence:
    figures, holds = {}, True
    for layers in range(1, DIAMETER + 1):
        model = {"model.features": 1, "model.layers": ["self-attention"] * layers, "model.dropout": 0.0}
        classifier = train("toy-graph", folder / str(layers), PATHS | model)
        right = right_by_distance(classifier)
        shown = ", ".join(f"{100 * share:.1f}" for share in right[1:])
        figures[f"{layers} layer{'s' * (layers > 1)}, at distance 1 to {DIAMETER}"] = (
            f"{shown}%, other path {100 * right[0]:.1f}%"
        )
        near, far = right[1 : layers + 1], right[layers + 1 :]
        holds = holds and min(near) >= 0.95 and right[0] >= 0.95 and max(far, default=0.0) <= 0.05
    return Evidence(figures, holds)


def right_by_distance(classifier: Any) -> list[float]:
    """The share of test nodes with the right label, by their distance from the mark; first, those of the other path."""
    right, total = [0] * LONGEST, [0] * LONGEST
    graphs = read_graphs(classifier.run.data, "test")
    for graph, found in zip(graphs, classifier.classify(graphs), strict=True):
        away = distances(len(graph.nodes), graph.edges, [float(node.values["mark"]) for node in graph.nodes].index(1.0))
        for node, label in enumerate(found.labels):
            if away[node] != 0:  # the mark itself is trivial
                at = away[node] if away[node] > 0 else 0
                total[at] += 1
                right[at] += label == graph.nodes[node].label
    return [one / count for one, count in zip(right, total, strict=True)]


def distances(nodes: int, edges: list[tuple[int, int]], start: int) -> list[int]:
    """The number of edges from a node to each other, by breadth-first search; -1: there is no path."""
    neighbors: list[list[int]] = [[] for _ in range(nodes)]
    for first, second in edges:
        neighbors[first].append(second)
        neighbors[second].append(first)
    away, waiting = [-1] * nodes, [start]
    away[start] = 0
    for node in waiting:
        for other in neighbors[node]:
            if away[other] < 0:
                away[other] = away[node] + 1
                waiting.append(other)
    return away
