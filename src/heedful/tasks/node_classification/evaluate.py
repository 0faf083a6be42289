"""Logits of the nodes of graphs, and the figures of a validation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from heedful.evaluation import labels
from heedful.evaluation.resampling import Numbers
from heedful.nn.model import inference_context
from heedful.tasks.node_classification.data import EncodedGraph, GraphData
from heedful.tasks.node_classification.model import PADDING, NodeModel
from heedful.tasks.system import System, batches_of


def logits_of(model: NodeModel, system: System, data: GraphData, graphs: Sequence[EncodedGraph]) -> list[Numbers]:
    """The logits of each graph, (nodes, labels); an error if they are not finite."""
    results: dict[int, Numbers] = {}
    order = sorted(range(len(graphs)), key=lambda i: len(graphs[i].names), reverse=True)
    with inference_context(model):
        for chosen in batches_of(order, lambda i: len(graphs[i].names), system.batch_tokens):
            batch = data.collate([graphs[i] for i in chosen]).to(system.device)
            logits = model(batch.nodes, batch.attends).double().cpu().numpy()
            for at, i in enumerate(chosen):
                results[i] = logits[at, : len(graphs[i].names)]
    if not all(np.isfinite(result).all() for result in results.values()):
        raise system.nonfinite_error("a graph")
    return [results[i] for i in range(len(graphs))]


class ScoredNodes(NamedTuple):
    """The nodes with a label, of all graphs."""

    logits: Numbers  # (nodes, labels)
    gold: NDArray[np.int64]  # (nodes,)

    def figures(self) -> dict[str, labels.Figure]:
        return labels.single_label_figures(self.logits, self.gold)


def score(model: NodeModel, system: System, data: GraphData, graphs: Sequence[EncodedGraph]) -> ScoredNodes:
    """The logits and labels of the nodes of a split."""
    logits = np.concatenate(logits_of(model, system, data, graphs))
    gold = torch.cat([graph.labels for graph in graphs]).numpy()
    return ScoredNodes(logits[gold != PADDING], gold[gold != PADDING])
