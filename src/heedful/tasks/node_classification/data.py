"""The data of node classification: graphs as tensors, and batches of graphs.

    graph 1    a b c          nodes      a b c        attends   1 1 .     a - b, c alone
    graph 2    d e                       d e .                  1 1 .
                                                                . . 1     (row, query, key), of graph 1

Padding attends to itself alone, and no node attends to it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from heedful.data.graphs import (
    Graph,
    GraphsConfig,
    Node,
    feature_names,
    feature_vector,
    files_of,
    find_graphs,
    has_split,
    read_graphs,
    title_of,
    unlabeled_nodes,
)
from heedful.data.report import CheckReport, CorpusCheck, Example, Finding, allowing
from heedful.data.sources import refuse_streams
from heedful.data.splits import SPLITS
from heedful.data.unusable import EXAMPLES
from heedful.errors import ConfigError, DataError, nearest
from heedful.evaluation.tables import counted
from heedful.tasks.base import ExampleFile, RunConfig, Tokenizers
from heedful.tasks.batches import pad_length
from heedful.tasks.node_classification.config import NodeClassificationConfig
from heedful.tasks.node_classification.model import PADDING
from heedful.tasks.predictor import missing_split_error
from heedful.text.tokenizer import Tokenizer

SHOWN = 12  # labels in a report


class EncodedGraph(NamedTuple):
    names: list[str]
    nodes: Tensor  # tokens (nodes,) or features (nodes, features)
    edges: Tensor  # (2, edges): the node that attends, and the node that it attends to; without self-loops
    labels: Tensor  # (nodes,): index of the label of the nodes of a split; PADDING for all others


class GraphBatch(NamedTuple):
    nodes: Tensor  # (rows, nodes), or (rows, nodes, features)
    attends: Tensor  # (rows, nodes, nodes), True where the first attends to the second
    labels: Tensor  # (rows, nodes)

    def pin(self) -> GraphBatch:
        return GraphBatch(*(tensor.pin_memory() for tensor in self))

    def to(self, device: torch.device) -> GraphBatch:
        return GraphBatch(*(tensor.to(device, non_blocking=True) for tensor in self))


class GraphSplits(NamedTuple):
    train: list[EncodedGraph]
    valid: list[EncodedGraph]


class GraphData:
    def __init__(self, run: RunConfig) -> None:
        self.config: NodeClassificationConfig = run.task
        self.data: GraphsConfig = run.data
        self.features = run.model.numeric_inputs

    def check(self) -> CheckReport:
        """Read every file once; report the nodes of each split and label."""
        refuse_streams(self.files())
        known: dict[Hashable, str] = {}  # graphs of their own of earlier splits, and their places
        return CheckReport(tuple(self.check_split(split, known) for split in SPLITS if has_split(self.data, split)))

    def check_split(self, split: str, known: dict[Hashable, str]) -> CorpusCheck:
        graphs = read_graphs(self.data, split)
        for graph in graphs:
            self.vectors(graph)
        missing = unlabeled_nodes(self.data, graphs)
        nodes, edges = sum(len(graph.nodes) for graph in graphs), sum(len(graph.edges) for graph in graphs)
        if len(missing) > self.data.max_unusable * nodes:
            raise DataError(
                f"{missing[0].place}: node {missing[0].name!r:.40} has no label; {len(missing):,} of {nodes:,} have none, "
                f"expected at most the fraction data.max_unusable = {self.data.max_unusable:g}",
                hint=f"add the labels, or set data.max_unusable = {allowing(len(missing) / nodes)} to use such nodes as "
                "neighbors only",
            )
        self.refuse_unknown_labels(graphs)
        counts = Counter(node.label for graph in graphs for node in graph.nodes if self.is_scored(node, split))
        if not counts:
            raise DataError(f"{title_of(self.data, split)} has no {split} node with a label; expected at least one")
        found = []
        if missing:
            examples = tuple(Example(node.place, f"node {node.name!r:.40} has no label") for node in missing[:EXAMPLES])
            found.append(Finding("blank", len(missing), "kept", examples))
        if self.data.builtin is None and not self.data.makes(split):
            same = [Example(one.place, f"the same graph as {known[key]}") for one in graphs if (key := content(one)) in known]
            found += [Finding("duplicate", len(same), "kept", tuple(same[:EXAMPLES]))] if same else []
        for graph in graphs:
            known.setdefault(content(graph), graph.place)
        sizes = f"{counted(len(graphs), 'graphs')}, {counted(edges, 'edges')}"
        shown = ", ".join(f"{label}: {count:,}" for label, count in counts.most_common(SHOWN))
        return CorpusCheck(
            split=split,
            title=title_of(self.data, split),
            total=nodes,
            kept=counts.total(),
            findings=tuple(found),
            dropped=np.zeros(0, np.int64),
            unit=f"{split} nodes",
            remark=f"{sizes}; {shown}{', …' if len(counts) > SHOWN else ''}",
            items="nodes",
        )

    def files(self) -> list[Path]:
        given = [found for split in SPLITS if (found := find_graphs(self.data, split)) is not None]
        return list(dict.fromkeys(file for one in given for file in files_of(one)))

    def lines(self, side: Literal["source", "target"]) -> Iterator[str]:
        """The tokens of the nodes of each graph; a model of features has a vocabulary of the labels."""
        for graph in read_graphs(self.data, "train") if side == "target" else ():
            yield " ".join(node.label or "" if self.features else self.token(node) for node in graph.nodes)

    @property
    def tags(self) -> list[str]:
        return []

    def prepare(self, tokenizers: Tokenizers, report: CheckReport) -> GraphSplits:
        return GraphSplits(*(self.split(split, tokenizers[1]) for split in ("train", "valid")))

    def split(self, split: str, tokenizer: Tokenizer) -> list[EncodedGraph]:
        """The graphs of a split, with the labels of its nodes."""
        if not has_split(self.data, split):
            raise missing_split_error(split)
        graphs = read_graphs(self.data, split)
        self.refuse_unknown_labels(graphs)
        return [self.encode(graph, tokenizer, split) for graph in graphs]

    def is_scored(self, node: Node, split: str) -> bool:
        """Whether a node has a label and belongs to the split."""
        return node.label is not None and (node.part == split or (node.part is None and self.data.split_column is None))

    def has_training_nodes(self, split: str) -> bool:
        """Whether the graphs of a split have training nodes, too."""
        return any(node.part == "train" for graph in read_graphs(self.data, split) for node in graph.nodes)

    def refuse_unknown_labels(self, graphs: Sequence[Graph]) -> None:
        labels = self.config.labels
        for node in (node for graph in graphs for node in graph.nodes if labels != "auto"):
            if node.label is not None and node.label not in labels:
                close = nearest(node.label, labels)
                raise DataError(
                    f"{node.place}: label {node.label!r:.40} of node {node.name!r:.40}; expected one of: "
                    f"{', '.join(labels):.200}",
                    hint=f"did you mean {close!r}?" if close else "correct the label, or add it to task.labels",
                )

    def token(self, node: Node) -> str:
        """The token of a node; spaces would make it several."""
        column = self.data.token or self.data.node
        if column not in node.values:
            known = ", ".join(node.values)
            raise DataError(f"{node.place} has no column {column!r}, data.token; its columns are: {known:.200}")
        return "_".join(node.values[column].split()) or "_"

    def feature_names(self, graphs: Sequence[Graph]) -> tuple[str, ...]:
        """The columns of the features; a number other than model.features is an error."""
        names = feature_names(self.data, graphs) if self.config.features == "auto" else self.config.features
        if len(names) != self.features:
            listed = f": {', '.join(names)}" if names else ""
            raise ConfigError(
                f"model.features is {self.features}, but {graphs[0].place} has {len(names)} columns of features{listed:.200}",
                hint=f"set model.features = {len(names)}" if names else "set model.features = 0 to use the names of the nodes",
            )
        return names

    def vectors(self, graph: Graph) -> list[list[float]]:
        """The features of each node; none if the inputs are tokens."""
        if not self.features:
            return []
        names = self.feature_names([graph])
        return [feature_vector(node, names) for node in graph.nodes]

    def encode(self, graph: Graph, tokenizer: Tokenizer, split: str | None = None) -> EncodedGraph:
        """A graph as tensors, with the labels of the nodes of a split; None: without labels."""
        if self.features:
            nodes = torch.tensor(self.vectors(graph))  # (nodes, features)
        else:
            known = tokenizer.encode_many([self.token(node) for node in graph.nodes])
            nodes = torch.tensor([ids[0] for ids in known])  # (nodes,)
        index = {label: at for at, label in enumerate(self.config.known_labels)}
        labels = [index[node.label or ""] if split and self.is_scored(node, split) else PADDING for node in graph.nodes]
        pairs = torch.tensor(graph.edges, dtype=torch.int64).view(-1, 2).T  # (2, edges): source, target
        return EncodedGraph(
            [node.name for node in graph.nodes],
            nodes,
            pairs.flip(0) if self.data.directed else torch.cat((pairs, pairs.flip(0)), 1),
            torch.tensor(labels),
        )

    def collate(self, graphs: Sequence[EncodedGraph]) -> GraphBatch:
        """Pad graphs to the same number of nodes."""
        multiple, rows = self.data.length_multiple, len(graphs)
        size = pad_length(max(len(graph.names) for graph in graphs), multiple, self.data.max_nodes)
        nodes = torch.zeros(rows, size, *graphs[0].nodes.shape[1:], dtype=graphs[0].nodes.dtype)
        labels = torch.full((rows, size), PADDING)
        attends = torch.eye(size, dtype=torch.bool).repeat(rows, 1, 1)
        for at, graph in enumerate(graphs):
            count = len(graph.names)
            nodes[at, :count], labels[at, :count] = graph.nodes, graph.labels
            if self.config.attend == "neighbors":
                attends[at, graph.edges[0], graph.edges[1]] = True
            elif self.config.attend == "all":
                attends[at, :count, :count] = True
        return GraphBatch(nodes, attends, labels)

    def usage_and_limits(self, folder: str) -> tuple[str, str]:
        """A usage example and the limits of the model, for its card."""
        names = () if self.config.features == "auto" else self.config.features
        columns = dict.fromkeys(names, 0.0) | ({self.data.token: "a"} if self.data.token else {})
        graph = {"nodes": [{self.data.node: name, **columns} for name in ("a", "b")], "edges": [["a", "b"]]}
        usage = f'classifier = heedful.load("{folder}")\nprint(next(classifier.predictions([{graph}])).labels)'
        inputs = "features" if self.features else "names of nodes"
        return (
            usage,
            f"It knows the {inputs} and labels of its training data, and graphs of up to {self.data.max_nodes:,} nodes.",
        )


def content(graph: Graph) -> Hashable:
    """What is known of a graph: two with the same content are the same."""
    return tuple(tuple(sorted(node.values.items())) for node in graph.nodes), tuple(sorted(graph.edges))


def resolve(run: RunConfig) -> dict[str, object]:
    """The labels of the training nodes and the columns of their features, where they are "auto"."""
    config: NodeClassificationConfig = run.task
    data = GraphData(run)
    refuse_streams(data.files())
    graphs = read_graphs(run.data, "train")
    found: dict[str, object] = {}
    if config.features == "auto":
        found["task.features"] = data.feature_names(graphs) if data.features else ()
    if config.labels == "auto":
        scored = (node for graph in graphs for node in graph.nodes if data.is_scored(node, "train"))
        labels = tuple(sorted({node.label for node in scored if node.label is not None}))
        if len(labels) < 2:
            found_labels = counted(len(labels), "labels")
            sentence = f"the training nodes of {title_of(run.data, 'train')} have {found_labels}; expected two or more"
            raise DataError(sentence, hint=f"set data.label to the column of the labels; it is {run.data.label!r}")
        found["task.labels"] = labels
    return found


def format_examples(examples: Iterable[Any]) -> ExampleFile:
    """Graphs, {"nodes": [{"node": "a", "label": "red", "x": 0.5}], "edges": [("a", "b")]}, as lines of JSON."""
    lines = []
    for number, example in enumerate(examples, start=1):
        if not isinstance(example, Mapping) or not isinstance(example.get("nodes"), Sequence):
            raise DataError(f"example {number} is {example!r:.60}; expected a graph, a dictionary with nodes and edges")
        try:
            lines.append(json.dumps({"nodes": example["nodes"], "edges": example.get("edges") or []}, ensure_ascii=False))
        except (TypeError, ValueError) as error:
            raise DataError(f"example {number} cannot be written as JSON: {error}; expected texts and numbers") from error
    return ExampleFile(".jsonl", "".join(f"{line}\n" for line in lines), "file")
