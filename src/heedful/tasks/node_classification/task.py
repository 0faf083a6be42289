"""Node classification: the cross-entropy of the label of each node that has one.

loss = -sum over labeled nodes log p(label)        all nodes of a graph are inputs, whatever split they belong to
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.data.graphs import GraphsConfig
from heedful.evaluation.tables import counted
from heedful.nn.losses import Loss
from heedful.nn.model import EncoderModel
from heedful.tasks.base import RunConfig, TaskDefinition
from heedful.tasks.batch_stream import StreamPosition, shuffled_batches, stream_batches
from heedful.tasks.node_classification.config import NodeClassificationConfig
from heedful.tasks.node_classification.data import GraphBatch, GraphData, GraphSplits, format_examples, resolve
from heedful.tasks.node_classification.evaluate import score
from heedful.tasks.node_classification.model import PADDING, NodeModel
from heedful.tasks.node_classification.predictor import NodeClassifier
from heedful.tasks.node_classification.starter import STARTER
from heedful.tasks.system import System
from heedful.training.loop import StreamedBatch, Validation
from heedful.training.update import Objective


class NodeClassificationTask:
    def __init__(self, run: RunConfig, corpora: GraphSplits, system: System) -> None:
        self.config: NodeClassificationConfig = run.task
        self.data: GraphsConfig = run.data
        self.seed, self.graphs = run.seed, GraphData(run)
        self.corpora, self.system = corpora, system
        if self.graphs.features:
            model = cast(EncoderModel, system.models[0].base_model)
            model.fit_inputs(torch.cat([graph.nodes for graph in corpora.train]))

    def statistics(self) -> dict[str, float]:
        """Sizes of the training data and of an epoch."""
        train = self.corpora.train
        return {
            "graphs": len(train),
            "nodes": sum(len(graph.names) for graph in train),
            "labeled_nodes": sum(int((graph.labels != PADDING).sum()) for graph in train),
            "batches_per_epoch": len(self.plan(0)),
        }

    def describe(self) -> str:
        sizes = self.statistics()
        return (
            f"{counted(len(self.config.known_labels), 'labels')}, {counted(sizes['labeled_nodes'], 'training nodes')} in "
            f"{counted(sizes['graphs'], 'graphs')} "
            f"of {counted(sizes['nodes'], 'nodes')}, in {counted(sizes['batches_per_epoch'], 'batches')} per epoch"
        )

    def plan(self, epoch: int) -> list[NDArray[np.int64]]:
        return shuffled_batches(len(self.corpora.train), self.data.batch, seed=self.seed, epoch=epoch)

    def stream(self, epoch: int, cursor: int) -> Generator[StreamedBatch, None, None]:
        """An endless stream of batches from the given position, prefetched."""

        def collate(chosen: NDArray[np.int64], epoch: int) -> GraphBatch:
            return self.graphs.collate([self.corpora.train[i] for i in chosen.tolist()])

        return stream_batches(
            self.plan, collate, StreamPosition(epoch, cursor), device=self.system.device, ahead=self.data.prefetch
        )

    def count(self, batch: GraphBatch) -> int:
        return int((batch.labels != PADDING).sum())

    def split(self, batch: GraphBatch, parts: int) -> Sequence[GraphBatch]:
        return [GraphBatch(*part) for part in zip(*(tensor.chunk(parts) for tensor in batch), strict=True)]

    def loss(self, model: NodeModel, batch: GraphBatch) -> Objective:
        return self.objective(model, *batch.to(self.system.device))

    def objective(self, model: NodeModel, nodes: Tensor, attends: Tensor, labels: Tensor) -> Objective:
        """The loss as a function of tensors only, which can be compiled or captured."""
        loss = model.loss(model(nodes, attends), labels)
        return Objective(loss, {"loss": Loss(loss.total.detach(), loss.count)})

    def validate(self, model: NodeModel) -> Validation:
        figures = score(model, self.system, self.graphs, self.corpora.valid).figures()
        return Validation({name: figure.statistics.value() for name, figure in figures.items()}, {}, [])


TASK = TaskDefinition(
    NodeClassificationConfig,
    GraphsConfig,
    GraphData,
    NodeClassificationTask,
    NodeClassifier,
    format_examples,
    STARTER,
    resolve,
)
