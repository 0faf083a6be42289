"""`heed evaluate` for node classification: metrics with confidence intervals, labels, confusion matrix, baselines."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from heedful.errors import ConfigError
from heedful.evaluation import labels as metrics
from heedful.evaluation.metrics import MIN_RESAMPLES
from heedful.evaluation.node_baselines import NodeTable, majority, propagate_labels, ridge_labels
from heedful.storage.writing import output_file
from heedful.tasks.classification.report import ClassificationReport, baseline_figures, intervals
from heedful.tasks.node_classification.command import EvaluateOptions
from heedful.tasks.node_classification.data import EncodedGraph
from heedful.tasks.node_classification.evaluate import score
from heedful.tasks.node_classification.model import PADDING

if TYPE_CHECKING:
    from heedful.tasks.node_classification.predictor import NodeClassifier


def report(classifier: NodeClassifier, split: str, options: EvaluateOptions) -> ClassificationReport:
    if 0 < options.bootstrap < MIN_RESAMPLES:
        raise ConfigError(f"--bootstrap: given {options.bootstrap}, expected 0 or at least {MIN_RESAMPLES}")
    names, graphs = classifier.run.task.labels, classifier.split_graphs(split)
    with output_file(options.output or Path(os.devnull)) as file:  # opened before the work, so that errors come early
        scored = score(classifier.classifier, classifier.system, classifier.graphs, graphs)
        nodes = (name for graph in graphs for name, label in zip(graph.names, graph.labels.tolist(), strict=True) if label >= 0)
        for node, gold, row in zip(nodes, scored.gold.tolist(), metrics.softmax(scored.logits), strict=True):
            probabilities = dict(zip(names, row.tolist(), strict=True))
            line = {"node": node, "gold": names[gold], "predicted": names[int(row.argmax())], "probabilities": probabilities}
            file.write(f"{json.dumps(line, ensure_ascii=False)}\n")
    predicted = scored.logits.argmax(1)
    one_hot = [metrics.one_hot(np.asarray(chosen, np.int64), len(names)) for chosen in (scored.gold, predicted)]
    figures = scored.figures()
    return ClassificationReport(
        split,
        len(scored.gold),
        {name: figure.statistics.value() for name, figure in figures.items()},
        intervals(figures, options.bootstrap),
        dict(zip(names, metrics.label_rows(one_hot[0], one_hot[1]), strict=True)),
        metrics.confusion_matrix(scored.gold, predicted, len(names)).tolist(),
        score_baselines(classifier, split, graphs) if options.baselines else {},
    )


def score_baselines(classifier: NodeClassifier, split: str, graphs: Sequence[EncodedGraph]) -> dict[str, dict[str, float]]:
    """Accuracy and macro F1 of each baseline; graphs: those of the split."""
    count = len(classifier.run.task.labels)
    train, tested = table_of(classifier.split_graphs("train")), table_of(graphs)
    scored = tested.labels != PADDING
    found = {"the most frequent label": np.full(int(scored.sum()), majority(train, count))}
    if train.features is not None and tested.features is not None:
        found["a linear model of the features"] = ridge_labels(train, tested.features[scored], count)
    if classifier.graphs.has_training_nodes(split):  # then these are the graphs of `train`
        found["label propagation"] = propagate_labels(train, count)[scored]
    return baseline_figures(found, tested.labels[scored], count)


def table_of(graphs: Sequence[EncodedGraph]) -> NodeTable:
    """The nodes of all graphs together."""
    starts = np.cumsum([0, *(len(graph.names) for graph in graphs)])
    edges = np.concatenate([graph.edges.numpy() + start for graph, start in zip(graphs, starts[:-1], strict=True)], 1)
    features = np.concatenate([graph.nodes.double().numpy() for graph in graphs]) if graphs[0].nodes.ndim > 1 else None
    return NodeTable(features, edges, np.concatenate([graph.labels.numpy() for graph in graphs]))
