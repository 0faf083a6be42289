"""A graph with the attention between its nodes: each edge has the weight with which one node attends to the other.

The weight of an edge is the mean over heads, of one layer or of all. A node's weights to itself and its neighbors sum to 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.errors import ConfigError
from heedful.evaluation.tables import table
from heedful.inspection.drawing.figure import Figure
from heedful.inspection.drawing.graph_figure import DrawnEdge, DrawnNode, graph_figure
from heedful.inspection.drawing.text_heatmap import printable_token
from heedful.inspection.page.blocks import Block, Pictures, Table, Words, sentence
from heedful.inspection.result import Result
from heedful.nn.hooks import record
from heedful.nn.model import inference_context
from heedful.search import SearchConfig
from heedful.tasks.predictor import Predictor

MAX_DRAWN = 200  # nodes of a picture
TOP = 3  # neighbors listed for each node


class NodeRow(NamedTuple):
    node: str
    label: str
    probability: float  # of this label
    itself: float  # attention of the node to itself


class EdgeRow(NamedTuple):
    node: str  # attends
    neighbor: str  # to this node
    weight: float


@dataclass(frozen=True)
class GraphResult(Result):
    """The result of `graph`.

    >>> from heedful.inspection.analyses.graph import EdgeRow, NodeRow
    >>> nodes = [NodeRow("a", "red", 0.9, 0.75), NodeRow("b", "blue", 0.6, 0.5)]
    >>> edges = [EdgeRow("a", "b", 0.25), EdgeRow("b", "a", 0.5)]
    >>> result = heedful.inspection.GraphResult("all layers, all heads", nodes, edges)
    >>> result.neighbors("a")[0].neighbor
    'b'
    """

    heads: str  # which layers and heads
    nodes: list[NodeRow]
    edges: list[EdgeRow]  # both directions of an edge that has none
    labels: Sequence[str] = ()  # all labels of the run, in the order of their colors in the picture

    @property
    def title(self) -> str:
        return "Attention along the edges of a graph"

    @property
    def legend(self) -> str:
        half = f"the half of a line next to a node: its attention to the other node, {self.heads}"
        return f"{half}; boxes: the label of a node, the paler, the less probable it is"

    def neighbors(self, node: str) -> list[EdgeRow]:
        """The edges along which a node attends, the largest weight first."""
        return sorted((edge for edge in self.edges if edge.node == node), key=lambda edge: -edge.weight)

    def to_dict(self) -> dict[str, Any]:
        rows = {"nodes": [node._asdict() for node in self.nodes], "edges": [edge._asdict() for edge in self.edges]}
        return {"heads": self.heads} | rows

    def rows(self) -> list[tuple[str, ...]]:
        head = ("node", "label", "probability", "attention to itself", f"to its neighbors, the largest {TOP}")
        attended: dict[str, list[EdgeRow]] = {}
        for edge in sorted(self.edges, key=lambda edge: -edge.weight):
            attended.setdefault(edge.node, []).append(edge)
        rows = []
        for one in self.nodes:
            top = ", ".join(f"{printable_token(edge.neighbor)} {edge.weight:.2f}" for edge in attended.get(one.node, [])[:TOP])
            rows.append((printable_token(one.node), one.label, f"{one.probability:.3f}", f"{one.itself:.3f}", top))
        return [head, *rows]

    def text(self) -> str:
        return f"attention of {self.heads}\n\n{table(self.rows())}"

    def blocks(self) -> list[Block]:
        pictures: list[Block] = [Pictures([self.figure()], f"{sentence(self.legend)}.")] if len(self.nodes) <= MAX_DRAWN else []
        return [Words(f"{sentence(f'attention of {self.heads}')}."), *pictures, Table(self.rows(), "nodes")]

    def figure(self) -> Figure:
        if len(self.nodes) > MAX_DRAWN:
            raise ConfigError(f"the graph has {len(self.nodes):,} nodes; expected at most {MAX_DRAWN} in a picture")
        index = {node.node: at for at, node in enumerate(self.nodes)}
        lines = [DrawnEdge(index[edge.node], index[edge.neighbor], edge.weight) for edge in self.edges]
        nodes = [DrawnNode(node.node, node.label, node.probability) for node in self.nodes]
        return graph_figure(nodes, lines, self.title, [sentence(self.legend)], self.labels)


def graph(
    predictor: Predictor,
    text: str,
    target: str | None = None,
    config: SearchConfig | None = None,
    *,
    layer: int | None = None,
    head: int | None = None,
) -> GraphResult:
    """The attention weights between the nodes of a graph, given as JSON. target: labels of the nodes, default: the predicted
    ones; layer, head: default: the mean over all.

    >>> text = '{"nodes": [{"node": "a", "x": 1, "y": 0}, {"node": "b", "x": 0, "y": 1}], "edges": [["a", "b"]]}'
    >>> result = heedful.inspection.graph(heedful.load(node_classification_run), text)
    >>> [edge.neighbor for edge in result.edges]
    ['b', 'a']
    """
    example = predictor.encode_example(text, target, config)
    if "attention_mask" not in example.more:
        raise ConfigError(
            f"a run of task {predictor.run.task.name!r} reads no graphs", hint="expected a run of task 'node_classification'"
        )
    weights = layer_weights(predictor, example, layer, head)
    with inference_context(predictor.model):
        logs = example.log_probabilities(predictor.model, example.forward(predictor.model).hidden)[0]  # (nodes,)
    names, allowed = example.target.pieces, example.more["attention_mask"][0].cpu()
    pairs = [(i, j) for i, j in allowed.nonzero().tolist() if i != j]
    places = f"layer {layer}" if layer is not None else "all layers"
    return GraphResult(
        f"{places}, {'all heads' if head is None else f'head {head}'}",
        [
            NodeRow(name, label, probability, float(weights[at, at]))
            for at, (name, label, probability) in enumerate(
                zip(names, example.outputs.pieces, logs.exp().tolist(), strict=True)
            )
        ],
        [EdgeRow(names[i], names[j], float(weights[i, j])) for i, j in pairs],
        predictor.run.task.labels,
    )


def layer_weights(predictor: Predictor, example: Any, layer: int | None, head: int | None) -> Tensor:
    """The mean attention weights of the chosen layers and heads: (nodes, nodes)."""
    layers = predictor.model.attentions()
    chosen = [one for one in layers if layer in (None, one.layer)]
    if not chosen:
        raise ConfigError(f"layer: given {layer}, expected one of: {', '.join(str(one.layer) for one in layers) or 'none'}")
    if head is not None and not all(0 <= head < one.heads for one in chosen):
        raise ConfigError(f"head: given {head}, expected at least 0 and less than {min(one.heads for one in chosen)}")
    with inference_context(predictor.model), record(predictor.model, *(one.weights for one in chosen)) as recorded:
        example.forward(predictor.model)
    maps: Sequence[Tensor] = [recorded[one.weights][0].float().cpu() for one in chosen]  # (heads, nodes, nodes)
    weights = torch.stack([one.mean(0) if head is None else one[head] for one in maps]).mean(0)
    if not bool(weights.isfinite().all()):
        raise predictor.system.nonfinite_error("the attention weights")
    return weights
