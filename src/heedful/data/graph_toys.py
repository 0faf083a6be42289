"""Generated graphs with a label for each node.

communities   one graph: nodes of four groups, most edges within a group (stochastic block model: Holland et al., 1983), and
              features that are the group's direction with noise. Neither the features of a node alone nor the labels of its
              neighbors tell its group well; both together do
reachable     many graphs, each of two paths, with one marked node: the label is whether a node is on the path of the mark.
              A node at distance d from the mark needs a network of d layers
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

GraphToy = Literal["communities", "reachable"]
Counts = tuple[int, int, int]  # of train, valid and test
PARTS = ("train", "valid", "test")
GROUPS, FEATURES = 4, 8
NOISE = 1.2  # standard deviation of a feature; the distance between two groups is 2
DEGREE, OUTSIDE = 8.0, 0.35  # mean number of edges of a node, and the share that leaves its group
LONGEST = 6  # nodes of a path


class ToyNode(NamedTuple):
    name: str
    label: str
    part: str | None  # None: as the graph
    features: dict[str, float]


class ToyGraph(NamedTuple):
    nodes: list[ToyNode]
    edges: list[tuple[int, int]]


def communities(split: str, counts: Counts) -> list[ToyGraph]:
    """One graph with the nodes of all splits, in random order."""
    draw = np.random.Generator(np.random.Philox(key=[1, sum(counts)]))
    count = sum(counts)
    groups = draw.integers(GROUPS, size=count)
    parts = draw.permutation(np.repeat(PARTS, counts))
    centers = np.eye(FEATURES)[:GROUPS] * np.sqrt(2.0)  # two groups are at a distance of 2
    features = centers[groups] + NOISE * draw.normal(size=(count, FEATURES))
    inside, outside = (1 - OUTSIDE) * GROUPS, OUTSIDE * GROUPS / (GROUPS - 1)  # relative to an even share of all nodes
    first, second = np.triu_indices(count, 1)
    same = groups[first] == groups[second]
    chosen = draw.random(len(first)) < DEGREE / max(count - 1, 1) * np.where(same, inside, outside)
    nodes = [
        ToyNode(f"n{at}", f"group{groups[at]}", str(parts[at]), {f"x{k}": round(float(x), 3) for k, x in enumerate(row)})
        for at, row in enumerate(features)
    ]
    return [ToyGraph(nodes, list(zip(first[chosen].tolist(), second[chosen].tolist(), strict=True)))]


def reachable(split: str, counts: Counts) -> list[ToyGraph]:
    """As many graphs as the split has."""
    draw = np.random.Generator(np.random.Philox(key=[2, PARTS.index(split)]))
    return [draw_paths(draw, LONGEST) for _ in range(counts[PARTS.index(split)])]


def draw_paths(draw: np.random.Generator, length: int) -> ToyGraph:
    """Two paths of `length` nodes, in random order; the mark is at an end of one of them."""
    order = draw.permutation(2 * length)  # the first half is the path of the mark
    marked = {int(at) for at in order[:length]}
    nodes = [
        ToyNode(f"v{at}", "yes" if at in marked else "no", None, {"mark": float(at == order[0])}) for at in range(len(order))
    ]
    edges = [(int(order[at]), int(order[at + 1])) for at in range(len(order) - 1) if at != length - 1]
    return ToyGraph(nodes, edges)


GRAPHS: dict[GraphToy, Callable[[str, Counts], list[ToyGraph]]] = {"communities": communities, "reachable": reachable}
