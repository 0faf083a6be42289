"""Logits of the nodes of graphs, and the figures of a validation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from heedful.evaluation import labels
from heedful.evaluation.resampling import Numbers
from heedful.nn.model import inference_context
from heedful.tasks.node_classification.data import EncodedGraph, GraphData
from heedful.tasks.node_classification.model import PADDING, NodeModel
from heedful.tasks.system import System


def logits_of(model: NodeModel, system: System, data: GraphData, graphs: Sequence[EncodedGraph]) -> list[Numbers]:
    """The logits of each graph, (nodes, labels); an error if they are not finite."""

    def logits(chosen: list[int]) -> Iterator[Numbers]:
        batch = data.collate([graphs[i] for i in chosen]).to(system.device)
        padded = model(batch.nodes, batch.attends).double().cpu().numpy()  # (graphs, nodes, labels)
        return (rows[: len(graphs[i].names)] for i, rows in zip(chosen, padded, strict=True))

    with inference_context(model):
        results = system.map_batches(logits, [len(graph.names) for graph in graphs], system.batch_tokens)
    if not all(np.isfinite(result).all() for result in results):
        raise system.nonfinite_error("a graph")
    return results


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
