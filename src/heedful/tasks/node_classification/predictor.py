"""A trained classifier of nodes: heedful.load("runs/toy-graph").predictions([{"nodes": […], "edges": […]}])."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

import torch
from torch import Tensor

from heedful.data.graphs import FORM, Graph, has_split, parse_graph, read_graphs, read_tables
from heedful.data.input_lines import CHUNK_LINES, checked_chunks, refuse_too_long
from heedful.data.json_text import parse_json
from heedful.data.sources import find_path
from heedful.errors import ConfigError, DataError, lookup
from heedful.evaluation.labels import softmax
from heedful.evaluation.tables import counted
from heedful.nn.model import inference_context
from heedful.search import SearchConfig
from heedful.tasks.classification.report import ClassificationReport
from heedful.tasks.encoded_example import Decoded, EncodedExample, Outputs, Tokens
from heedful.tasks.node_classification.command import EvaluateOptions, PredictOptions
from heedful.tasks.node_classification.data import EncodedGraph, GraphBatch, GraphData
from heedful.tasks.node_classification.evaluate import logits_of, score
from heedful.tasks.node_classification.model import PADDING, NodeModel
from heedful.tasks.node_classification.report import report
from heedful.tasks.predictor import ExampleInput, Loader, Predictor, Searcher, ValidationResult, check_split
from heedful.tasks.system import batches_of

Input = str | Mapping[str, Any]  # a graph as JSON, or as a dictionary
LOSS_TOKENS = 2**12  # nodes in a batch of `training_losses`
WHOLE = 200  # nodes of an example that is a whole graph, at most; as many as a picture has
NEIGHBORHOOD = 40  # nodes of an example from a larger graph
WIDTH = 60  # characters of a graph in messages


class NodePrediction(NamedTuple):
    """A label for each node of a graph."""

    nodes: list[str]
    labels: list[str]  # the most probable
    probabilities: list[dict[str, float]]  # of all labels

    @property
    def text(self) -> str:
        return " ".join(self.labels)

    def rows(self) -> list[str]:
        return [f"{node}\t{label}" for node, label in zip(self.nodes, self.labels, strict=True)]

    def to_dict(self) -> dict[str, Any]:
        rows = zip(self.nodes, self.labels, self.probabilities, strict=True)
        return {"nodes": [{"node": node, "label": label, "probabilities": chances} for node, label, chances in rows]}


class NodeClassifier(Predictor):
    """A trained model of node classification. A graph is a dictionary, {"nodes": [{"node": "a", …}], "edges": [("a", "b")]}, or
    the same as JSON; nodes have the columns of the training data.

    >>> classifier = heedful.NodeClassifier.load(node_classification_run)
    >>> graph = {"nodes": [{"node": "a", "x": 1.0, "y": 0.0}, {"node": "b", "x": 0.0, "y": 1.0}], "edges": [("a", "b")]}
    >>> len(next(classifier.predictions([graph])).labels)
    2
    """

    phases: ClassVar[tuple[str, ...]] = ("training step", "prediction")
    reads_text: ClassVar[bool] = False

    @property
    def classifier(self) -> NodeModel:
        """The model with its head."""
        return cast(NodeModel, self.model)

    @property
    def graphs(self) -> GraphData:
        return GraphData(self.run)

    @property
    def input_names(self) -> Sequence[str]:
        return ["graph"]

    def predict(self, inputs: Any, **options: Any) -> Any:
        """The labels of the nodes of one graph, or of each of several, separated by spaces."""
        return self.apply(inputs, lambda prediction: prediction.text, **options)

    def is_one(self, inputs: Any) -> bool:
        return isinstance(inputs, str | Mapping)

    def predictions(self, texts: Iterable[Input], **options: Any) -> Iterator[NodePrediction]:
        """Yield the labels of the nodes of each graph."""
        if options:
            raise ConfigError(f"given {next(iter(options))!r}, but node classification has no options")
        remaining = iter(texts)
        return self.predict_graphs(iter(lambda: list(islice(remaining, CHUNK_LINES)), []))

    def check_inputs(self, files: Sequence[Path], options: PredictOptions) -> None:
        if options.edges is not None and options.nodes is None:
            raise ConfigError("--edges is given without --nodes; expected the table of nodes as well")
        if options.nodes is not None and [str(file) for file in files] != ["-"]:
            raise ConfigError("given both --nodes and a file of graphs, expected one of them")

    def predict_chunks(
        self,
        chunks: Iterable[Sequence[str]],
        config: SearchConfig,
        options: PredictOptions,
        unknown: dict[str, int],
        first: int = 1,
    ) -> Iterator[NodePrediction]:
        if options.nodes is None:
            return self.predict_graphs(chunks, first)
        return self.classify(self.table_graphs(options.nodes, options.edges))

    def table_graphs(self, nodes: Path, edges: Path | None) -> list[Graph]:
        """The graphs of a table of nodes and one of edges, like those of the training data."""
        return read_tables(self.run.data.undivided(), find_path(str(nodes)), None if edges is None else find_path(str(edges)))

    def table_text(self, nodes: Path, edges: Path | None) -> str:
        """The graph of two tables as JSON, as `encode_example` reads it; DataError if they have several."""
        graph, *more = self.table_graphs(nodes, edges)
        if more:
            raise DataError(f"{nodes} has {len(more) + 1:,} graphs; expected one", hint="keep the lines of one graph")
        self.encode_graph(graph)  # an unusable feature is an error with the line of the table
        everything = range(len(graph.nodes))
        return graph_text(graph, everything, everything, self.run.data.label)

    def join_lines(self, chunks: Iterable[Sequence[str]]) -> Iterator[Sequence[str]]:
        return ([line for line in chunk if line.strip()] for chunk in chunks)

    def predict_graphs(self, chunks: Iterable[Sequence[Input]], first: int = 1) -> Iterator[NodePrediction]:
        for _, graphs in checked_chunks(chunks, self.read_input, first):
            yield from self.classify(graphs)

    def read_input(self, given: Input, number: int) -> Graph:
        """The graph of an input; DataError if it is none. Its nodes may have labels, which are ignored."""
        place = f"graph {number}"
        if isinstance(given, str):
            refuse_too_long(given, place)
            self.refuse_path(given, place)
            given = parse_json(given, place, expected=FORM, hint="on the command line, --nodes and --edges read tables")
        return parse_graph(self.run.data.undivided(), given, place)

    def classify(self, graphs: Sequence[Graph]) -> Iterator[NodePrediction]:
        encoded = [self.encode_graph(graph) for graph in graphs]
        labels: tuple[str, ...] = self.run.task.labels
        for graph, logits in zip(encoded, logits_of(self.classifier, self.system, self.graphs, encoded), strict=True):
            rows = softmax(logits).tolist()
            best = [labels[row.index(max(row))] for row in rows]
            yield NodePrediction(graph.names, best, [dict(zip(labels, row, strict=True)) for row in rows])

    def encode_graph(self, graph: Graph) -> EncodedGraph:
        return self.graphs.encode(graph, self.system.target_tokenizer)

    def split_graphs(self, split: str) -> list[EncodedGraph]:
        """The graphs of a split of the run's data, with the labels of its nodes."""
        check_split(self.run.data, split)
        return self.graphs.split(split, self.system.target_tokenizer)

    def example_inputs(self, split: str) -> Iterator[ExampleInput]:
        """The graphs of a split, with the labels of their nodes. Of a large graph, the neighborhoods of the nodes of the
        split: each with the nodes that are fewest edges away, among them all that its label depends on. There only nodes
        whose predictions are those of the whole graph have a label."""
        data = self.run.data
        for graph in read_graphs(data, split) if has_split(data, split) else ():
            everything = range(len(graph.nodes))
            if len(graph.nodes) <= WHOLE:
                yield ExampleInput(graph_text(graph, everything, everything, data.label), None)
                continue
            neighbors, layers = neighbors_of(graph), len(self.model.attentions())
            for at, node in enumerate(graph.nodes):
                if self.graphs.is_scored(node, split):
                    chosen = nearest_nodes(neighbors, at, NEIGHBORHOOD, layers)[:WHOLE]
                    inside = set(chosen)
                    complete = {one for one in chosen if inside.issuperset(nearest_nodes(neighbors, one, 1, layers))}
                    yield ExampleInput(graph_text(graph, chosen, complete, data.label), None, f"node {node.name}")

    def evaluate(self, split: str = "test") -> dict[str, float]:
        """The metrics of a validation on a split of the run's data."""
        scored = score(self.classifier, self.system, self.graphs, self.split_graphs(split))
        return {name: figure.statistics.value() for name, figure in scored.figures().items()}

    def report(self, split: str | None, options: EvaluateOptions, *, load: Loader, search: Searcher) -> ClassificationReport:
        return report(self, split or "test", options)

    def validate(self) -> ValidationResult:
        return ValidationResult(self.evaluate("valid"), None, None, {})

    def training_losses(self, count: int) -> Iterator[Callable[[], Tensor]]:
        """Of the first `count` training nodes with a label."""
        graphs, data, left = self.split_graphs("train"), self.graphs, count
        for chosen in batches_of(range(len(graphs)), lambda i: max(len(graph.names) for graph in graphs), LOSS_TOKENS):
            batch = data.collate([graphs[i] for i in chosen])
            scored = int((batch.labels != PADDING).sum())
            if left > 0 and scored:
                yield partial(node_losses, self.classifier, batch.to(self.system.device), left)
            left -= scored

    def encode_example(self, text: str, target: str | None = None, config: SearchConfig | None = None) -> EncodedExample:
        """A graph, as JSON, with the labels of its nodes; its tokens are the nodes. target: labels separated by spaces,
        default: the predicted ones."""
        if config is not None:
            raise ConfigError("search options have no effect on a classifier, which decodes no text", hint="remove them")
        graph = self.read_input(text, 1)
        (predicted,) = self.classify([graph])
        labels, known = predicted.labels if target is None else target.split(), self.run.task.labels
        if len(labels) != len(predicted.nodes):
            raise ConfigError(
                f"given {counted(len(labels), 'labels')}, expected one for each of {counted(len(predicted.nodes), 'nodes')}"
            )
        for label in labels:
            lookup(label, dict.fromkeys(known), "label")
        device, encoded = self.system.device, self.encode_graph(graph)
        batch = self.graphs.collate([encoded]).to(device)
        places = torch.arange(len(labels), device=device)
        outputs = Outputs(
            torch.tensor([known.index(label) for label in labels], device=device),
            labels,
            places,
            lambda model, hidden: model.classify(hidden)[:, : len(labels)],  # (rows, nodes, labels)
            lambda chosen: [known[i] for i in chosen],
        )
        ids = list(range(len(labels)))
        tokens = Tokens(
            f"a graph of {counted(len(ids), 'nodes')} and {counted(len(graph.edges), 'edges')}", ids, predicted.nodes, ids
        )
        nodes = batch.nodes[:, : len(ids)]
        attends = batch.attends[:, : len(ids), : len(ids)]
        source = torch.zeros(1, 0, dtype=torch.int64, device=device)
        more = {"attention_mask": attends}
        return EncodedExample(
            None, tokens, None, None, source, nodes, outputs, reads_end=True, label=" ".join(labels), more=more
        )

    def decode_example(
        self, example: EncodedExample, prefix: Sequence[int] = (), config: SearchConfig | None = None
    ) -> Decoded:
        """The most probable labels."""
        if prefix:
            raise ConfigError(
                "a classifier decodes no text, so no token can be forced", hint="compare the labels' probabilities"
            )
        with inference_context(self.classifier):
            logs = example.logits(self.classifier, example.forward(self.classifier).hidden)[0].float().log_softmax(-1)
        best, total = logs.argmax(-1).tolist(), float(logs.max(-1).values.sum())
        return Decoded(" ".join(example.outputs.spell(best)), best, total, total)

    def replace_input(self, example: EncodedExample, text: str) -> EncodedExample:
        return self.encode_example(text, " ".join(example.outputs.pieces))

    def example_graphs(self, split: str) -> list[Graph]:
        """The graphs of a split as they were read."""
        return read_graphs(self.run.data, split)

    def unknown_words(self, text: str) -> list[str]:
        return []  # a graph has none


def node_losses(model: NodeModel, batch: GraphBatch, count: int) -> Tensor:
    """-log p of the label of the first `count` nodes that have one, (nodes,)."""
    losses = model.losses(model(batch.nodes, batch.attends), batch.labels)
    return losses[batch.labels != PADDING][:count]


def neighbors_of(graph: Graph) -> list[list[int]]:
    """The nodes at the other end of the edges of each node, in either direction."""
    neighbors: list[list[int]] = [[] for _ in graph.nodes]
    for first, second in graph.edges:
        neighbors[first].append(second)
        neighbors[second].append(first)
    return neighbors


def nearest_nodes(neighbors: Sequence[Sequence[int]], start: int, count: int, edges: int) -> list[int]:
    """A node and those fewest edges away from it: `count`, or more if more are at most `edges` away; the nearest first."""
    distances = {start: 0}
    waiting = deque([start])
    while waiting:
        here = waiting.popleft()
        for at in neighbors[here]:
            if at not in distances and (len(distances) < count or distances[here] < edges):
                distances[at] = distances[here] + 1
                waiting.append(at)
    return list(distances)


def graph_text(graph: Graph, chosen: Sequence[int], labeled: Container[int], label: str) -> str:
    """Some nodes of a graph, with the edges between them, as JSON; labeled: those with their labels; label: name of the column
    of the labels."""
    names = {at: graph.nodes[at].name for at in chosen}
    edges = [[names[first], names[second]] for first, second in graph.edges if first in names and second in names]
    nodes = [{**graph.nodes[at].values, label: graph.nodes[at].label if at in labeled else None} for at in chosen]
    return json.dumps({"nodes": nodes, "edges": edges}, ensure_ascii=False)
