"""Baselines of node classification: what a model of both features and edges should exceed.

    majority            the most frequent label of the training nodes
    features            ridge regression of the labels on the features of a node alone
    label propagation   F <- a D^-1/2 A D^-1/2 F + (1 - a) Y          (Zhou et al., 2004): edges and training labels alone

A: adjacency, D: its degrees, Y: the training labels, one-hot; F: scores of all labels. It needs training nodes in the graphs
that are scored.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.evaluation.resampling import Numbers

Indices = NDArray[np.int64]
PENALTY = 1.0  # of ridge regression, on standardized features
KEPT, ROUNDS = 0.9, 100  # the constant a, and iterations


class NodeTable(NamedTuple):
    """The nodes of all graphs of a split; edges have indices into all of them."""

    features: Numbers | None  # (nodes, features); None: the inputs are tokens
    edges: Indices  # (2, edges)
    labels: Indices  # (nodes,); negative: not in the split


def majority(train: NodeTable, count: int) -> int:
    """The most frequent label; count: of labels."""
    return int(np.bincount(train.labels[train.labels >= 0], minlength=count).argmax())


def ridge_labels(train: NodeTable, tested: Numbers, count: int) -> Indices:
    """Labels of nodes with the given features, by ridge regression on one-hot labels with an intercept."""
    assert train.features is not None, "the nodes have features"
    chosen = train.labels >= 0
    given, gold = train.features[chosen], np.eye(count)[train.labels[chosen]]
    mean, deviation = given.mean(0), given.std(0)
    deviation = np.where(deviation > 0, deviation, 1.0)
    x, center = (given - mean) / deviation, gold.mean(0)
    weights = np.linalg.solve(x.T @ x + PENALTY * np.eye(x.shape[1]), x.T @ (gold - center))  # (features, labels)
    found: Indices = ((tested - mean) / deviation @ weights + center).argmax(1)
    return found


def propagate_labels(train: NodeTable, count: int) -> Indices:
    """Labels of all nodes of the graphs with the training nodes."""
    nodes = len(train.labels)
    first, second = train.edges
    degrees = np.maximum(np.bincount(first, minlength=nodes), 1).astype(float)
    weights = 1 / np.sqrt(degrees[first] * degrees[second])  # of each edge
    known = np.zeros((nodes, count))
    known[train.labels >= 0] = np.eye(count)[train.labels[train.labels >= 0]]
    scores = known
    for _ in range(ROUNDS):
        moved = [np.bincount(first, weights * scores[second, label], minlength=nodes) for label in range(count)]
        scores = KEPT * np.stack(moved, 1) + (1 - KEPT) * known
    found: Indices = scores.argmax(1)
    return np.where(scores.any(1), found, majority(train, count))
