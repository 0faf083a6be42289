"""Node classification: information travels one edge per layer, names and order of nodes do not matter, and edges help."""

from __future__ import annotations

import json
import math
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_tasks import write_tiny_recipe
from torch import Tensor
from torch.testing import assert_close
from workshop import heed

import heedful
from heedful import inspection
from heedful.data.graph_toys import GRAPHS
from heedful.data.graphs import Graph, Node, read_graphs
from heedful.errors import ConfigError, DataError
from heedful.evaluation.node_baselines import NodeTable, propagate_labels, ridge_labels
from heedful.inspection.drawing.figure import Area, Figure, Label, Polyline, color
from heedful.inspection.drawing.graph_figure import DrawnEdge, DrawnNode, graph_figure
from heedful.models.encoder import Encoder, EncoderConfig
from heedful.runs.build import data_of
from heedful.runs.config import read_run
from heedful.tasks.node_classification import predictor
from heedful.tasks.node_classification.data import EncodedGraph, GraphData
from heedful.tasks.node_classification.model import NodeModel
from heedful.tasks.node_classification.predictor import NodeClassifier

FEATURES = 3


def draw_graph(nodes: int, edges: int, seed: int) -> list[tuple[int, int]]:
    """Random edges; some nodes may be isolated."""
    draw = random.Random(seed)
    return [(draw.randrange(nodes), draw.randrange(nodes)) for _ in range(edges)]


def distances(nodes: int, edges: list[tuple[int, int]], *, directed: bool) -> Tensor:
    """(query, key): number of edges from the key to the query, by powers of the adjacency; `nodes` where there is no path."""
    reached, away = torch.eye(nodes, dtype=torch.bool), torch.full((nodes, nodes), nodes)
    step = torch.eye(nodes, dtype=torch.bool)
    for first, second in edges:
        step[second, first] = True
        if not directed:
            step[first, second] = True
    for hops in range(nodes):
        away = torch.where(reached & (away == nodes), hops, away)
        reached = (step.float() @ reached.float()) > 0
    return away


def make_data(tmp_path: Path, *overrides: str) -> GraphData:
    recipe = write_tiny_recipe("node_classification", tmp_path)
    found = data_of(read_run(recipe, [f"model.features={FEATURES}", *overrides]).config)
    assert isinstance(found, GraphData)
    return found


def make_model(layers: int, seed: int = 1) -> NodeModel:
    torch.manual_seed(seed)
    kinds: Any = ("self-attention",) * layers
    config = EncoderConfig(dim=16, layers=kinds, heads=2, feed_forward=32, features=FEATURES)
    return NodeModel(Encoder(config, 4), 16, 2, 0.0).eval()


def make_graph(nodes: int, edges: list[tuple[int, int]], *, directed: bool = False) -> EncodedGraph:
    pairs = torch.tensor(edges).view(-1, 2).T
    both = pairs.flip(0) if directed else torch.cat((pairs, pairs.flip(0)), 1)
    features = torch.randn(nodes, FEATURES, generator=torch.Generator().manual_seed(3))
    return EncodedGraph([f"n{at}" for at in range(nodes)], features, both, torch.zeros(nodes).long())


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_node_depends_on_another_iff_their_distance_is_at_most_the_number_of_layers(
    layers: int, directed: bool, tmp_path: Path
) -> None:
    nodes, edges = 14, draw_graph(14, 16, seed=5)
    data, model = make_data(tmp_path), make_model(layers)
    batch = data.collate([make_graph(nodes, edges, directed=directed)])
    inputs = batch.nodes.requires_grad_()
    logits = model(inputs, batch.attends)
    found = torch.stack(
        [torch.autograd.grad(logits[0, at, 0], inputs, retain_graph=True)[0][0].abs().sum(-1) > 0 for at in range(nodes)]
    )
    near = distances(nodes, edges, directed=directed) <= layers
    assert torch.equal(found, near) and not bool(near.all())


@torch.no_grad()
def test_another_order_of_the_nodes_permutes_the_outputs(tmp_path: Path) -> None:
    nodes, edges = 12, draw_graph(12, 20, seed=2)
    data, model, order = make_data(tmp_path), make_model(2), torch.randperm(12, generator=torch.Generator().manual_seed(1))
    graph = make_graph(nodes, edges)
    place = torch.empty_like(order)
    place[order] = torch.arange(nodes)
    moved = graph._replace(nodes=graph.nodes[order], edges=place[graph.edges])
    first, second = (data.collate([one]) for one in (graph, moved))
    assert_close(model(second.nodes, second.attends)[0], model(first.nodes, first.attends)[0, order], atol=1e-6, rtol=0)


@torch.no_grad()
def test_padding_and_other_graphs_of_a_batch_change_nothing(tmp_path: Path) -> None:
    data, model = make_data(tmp_path, "data.pad_to_multiple_of=8"), make_model(2)
    graphs = [make_graph(count, draw_graph(count, 8, seed=count)) for count in (3, 7, 5)]
    batch = data.collate(graphs)
    assert batch.nodes.shape == (3, 8, FEATURES)
    together = model(batch.nodes, batch.attends)
    for row, graph in enumerate(graphs):
        exact = make_data(tmp_path).collate([graph])
        assert exact.nodes.shape[1] == len(graph.names)
        assert_close(model(exact.nodes, exact.attends)[0], together[row, : len(graph.names)], atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], ["a c", "b d", "a c", "b d"]),  # the nodes that a, b, c and d attend to; the edges are a -> c and b -> d
        (["data.directed=true"], ["a", "b", "a c", "b d"]),
        (["task.attend=self"], ["a", "b", "c", "d"]),
        (["task.attend=all"], ["a b c d"] * 4),
    ],
)
def test_a_node_attends_to_itself_and_to_the_sources_of_its_edges(
    options: list[str], expected: list[str], tmp_path: Path
) -> None:
    found = data_of(read_run(write_tiny_recipe("node_classification", tmp_path), options).config)
    assert isinstance(found, GraphData)
    (graph,) = [found.encode(graph, None) for graph in read_graphs(found.data, "train")]  # type: ignore[arg-type]
    attends = found.collate([graph]).attends[0].tolist()
    assert [" ".join(name for name, one in zip("abcd", row, strict=True) if one) for row in attends] == expected


def test_edges_and_features_together_are_better_than_each_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts = "data.counts={train=60, valid=20, test=100}"
    steps = [f"training.{name}=40" for name in ("steps", "save_every", "validate_every")]
    accuracies = {}
    for attend in ("neighbors", "self"):
        assert heed("train", "toy-graph", counts, *steps, f"task.attend={attend}", "--run", tmp_path / attend) == 0
        assert heed("evaluate", tmp_path / attend, "--baselines", "--bootstrap", "0", "--json") == 0
        found = json.loads(capsys.readouterr().out)
        accuracies[attend] = found["figures"]["accuracy"]
    linear = found["baselines"]["a linear model of the features"]["accuracy"]
    assert accuracies["neighbors"] > max(accuracies["self"], linear) + 0.05
    assert set(found["baselines"]) == {"the most frequent label", "a linear model of the features", "label propagation"}
    classifier: Any = heedful.NodeClassifier.load(tmp_path / "neighbors")
    assert classifier.evaluate("test")["accuracy"] == accuracies["neighbors"]


def test_labels_are_not_propagated_to_test_graphs_without_training_nodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the graph of `train`, some nodes are for validation; the test graph is another."""
    recipe, text = write_tiny_recipe("node_classification", tmp_path), "node,label,x,y\na,yes,1,0\nb,no,0,1\n"
    (tmp_path / "other.csv").write_text(text)
    (tmp_path / "nodes.csv").write_text(f"{text}g,yes,1,1\nh,no,0,2\nc,no,0,1\n")  # by their hashes, g and h for validation
    (tmp_path / "edges.csv").write_text("source,target\na,g\nb,h\n")
    begin, end = (recipe.read_text().index(table) for table in ("[data.valid]", "[task]"))
    test = f'[data.test]\nnodes = "{tmp_path / "other.csv"}"\n\n'
    changed = recipe.read_text()[:begin] + test + recipe.read_text()[end:]
    recipe.write_text(changed.replace("[data]", "[data]\nparts = [0.7, 0.3, 0.0]"))
    assert heed("train", recipe, "training.steps=1", "--run", tmp_path / "run") == 0
    for split, propagated in (("valid", True), ("test", False)):
        capsys.readouterr()
        assert heed("evaluate", tmp_path / "run", "--baselines", "--split", split, "--json") == 0
        found = json.loads(capsys.readouterr().out)["baselines"]
        assert ("label propagation" in found) == propagated and "the most frequent label" in found


def test_baselines_equal_their_definitions() -> None:
    edges = np.array([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]])  # 0 - 1 - 2, 3 - 4, 5
    labels = np.array([0, -100, -100, 1, -100, -100])
    assert propagate_labels(NodeTable(None, edges, labels), 2).tolist() == [0, 0, 0, 1, 1, 0]
    features = np.array([[1.0, 5.0], [-1.0, 5.0], [2.0, 5.0], [-3.0, 5.0]])  # the second is constant
    train = NodeTable(features, edges[:, :0], np.array([0, 1, 0, 1]))
    assert ridge_labels(train, np.array([[0.5, 5.0], [-0.7, 9.0]]), 2).tolist() == [0, 1]


@pytest.mark.parametrize("name", GRAPHS)
def test_generated_graphs_are_the_same_every_time_and_differ_by_split(name: Any) -> None:
    first, again, other = (GRAPHS[name](split, (6, 4, 2)) for split in ("train", "train", "test"))
    assert first == again
    labels = {node.part for node in first[0].nodes}
    if name == "communities":
        assert labels == {"train", "valid", "test"} and len(first[0].nodes) == 12 and other == first
    else:
        assert len(first) == 6 and len(other) == 2 and first[:2] != other


def test_of_a_marked_path_exactly_the_nodes_that_are_reachable_have_the_label_yes() -> None:
    for graph in GRAPHS["reachable"]("train", (5, 1, 1)):
        (mark,) = [at for at, node in enumerate(graph.nodes) if node.features["mark"] == 1]
        away = distances(len(graph.nodes), graph.edges, directed=False)[mark]
        assert [node.label for node in graph.nodes] == ["yes" if hops < len(graph.nodes) else "no" for hops in away.tolist()]
        assert sorted(away[away < len(graph.nodes)].tolist()) == list(range(len(graph.nodes) // 2))


@pytest.fixture(scope="module")
def classifier(tiny_runs: dict[str, Path]) -> NodeClassifier:
    return NodeClassifier.load(tiny_runs["node_classification"])


GRAPH: dict[str, Any] = {
    "nodes": [{"node": name, "x": x, "y": 0.5} for name, x in (("u", 1), ("v", 0), ("w", 2), ("alone", 1))],
    "edges": [("u", "v"), ("v", "w"), ("v", "u"), ("w", "w")],
}


def test_labels_of_a_part_of_a_graph_are_those_of_nodes_with_the_same_prediction_in_the_whole_graph(
    classifier: NodeClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers, names = len(classifier.model.attentions()), [f"n{at}" for at in range(30)]
    nodes = [Node("", name, "one", None, {"node": name, "x": str(at % 3), "y": "1"}) for at, name in enumerate(names)]
    monkeypatch.setattr(predictor, "WHOLE", 20)
    monkeypatch.setattr(predictor, "NEIGHBORHOOD", 9)
    monkeypatch.setattr(predictor, "has_split", lambda data, split: True)
    monkeypatch.setattr(predictor, "read_graphs", lambda data, split: [Graph("", nodes, [(at, at + 1) for at in range(29)])])
    whole = {"nodes": [node.values for node in nodes], "edges": list(pairwise(names))}
    expected = dict(zip(names, next(classifier.predictions([whole])).probabilities, strict=True))
    examples = list(classifier.example_inputs("valid"))
    assert [one.name for one in examples] == [f"node {name}" for name in names]
    for name, found in zip(names, classifier.predictions([one.text for one in examples]), strict=True):
        given = json.loads(examples[names.index(name)].text)["nodes"]
        labeled = [at for at, node in enumerate(given) if node["label"] is not None]
        assert given[0]["node"] == name and 0 in labeled and len(labeled) <= 9 - layers * (0 < names.index(name) < 29)
        for at in labeled:
            assert found.probabilities[at] == pytest.approx(expected[found.nodes[at]], abs=1e-5)


def test_edges_that_occur_twice_and_loops_change_nothing(classifier: NodeClassifier) -> None:
    simple = GRAPH | {"edges": [("w", "v"), ("u", "v")]}
    found = [one.to_dict() for one in classifier.predictions([GRAPH, simple, json.dumps(GRAPH)])]
    assert found[0] == found[1] == found[2]
    other = next(classifier.predictions([GRAPH | {"edges": []}])).to_dict()["nodes"]
    assert other[0] != found[0]["nodes"][0] and other[3] == found[0]["nodes"][3]


def test_tables_and_json_have_the_same_predictions(
    classifier: NodeClassifier, tiny_runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nodes.tsv").write_text("node\ty\tx\n" + "".join(f"{n['node']}\t{n['y']}\t{n['x']}\n" for n in GRAPH["nodes"]))
    (tmp_path / "edges.tsv").write_text("source\ttarget\n" + "".join("\t".join(edge) + "\n" for edge in GRAPH["edges"]))
    run = tiny_runs["node_classification"]
    tables: list[str | Path] = ["--nodes", tmp_path / "nodes.tsv", "--edges", tmp_path / "edges.tsv"]
    capsys.readouterr()
    assert heed("classify-nodes", run, *tables) == 0
    assert capsys.readouterr().out == "".join(f"{row}\n" for row in next(classifier.predictions([GRAPH])).rows())
    assert heed("classify-nodes", run, tables[1], *tables) == 2
    assert "given both --nodes and a file of graphs" in capsys.readouterr().err
    assert heed("classify-nodes", run, *tables[2:]) == 2
    assert "--edges is given without --nodes" in capsys.readouterr().err
    assert heed("inspect", "graph", run, *tables, "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown == inspection.graph(classifier, json.dumps(GRAPH)).to_dict() and shown["edges"]
    assert heed("inspect", "graph", run, "{}", *tables) == 2
    assert "given a graph and --nodes, expected one of: a graph, --file, --nodes" in capsys.readouterr().err
    assert heed("inspect", "graph", run, *tables[2:], "--file", tables[1]) == 2
    assert "--edges is given without --nodes" in capsys.readouterr().err


def test_a_graph_that_is_none_is_one_sentence(classifier: NodeClassifier) -> None:
    for given, message in (
        ("{", "graph 1 is not JSON"),
        ("node,x\na,1\n", r"graph 1 is not JSON: Expecting value; expected a graph: \{\"nodes\": "),
        ("[1]", r"graph 1 is \[1\]; expected a graph"),
        ({"nodes": []}, "graph 1 has no nodes; expected at least one"),
        ({"nodes": [{"x": 1}]}, "graph 1, node 1 is .* expected an object with 'node'"),
        ({"nodes": [{"node": "a", "x": 1}]}, "node 'a' has no feature 'y'"),
        ({"nodes": [{"node": "a", "x": 1, "y": "b"}]}, "column 'y': 'b' is not a number; expected a number"),
        (GRAPH | {"edges": [("u", "x")]}, "edge 1: there is no node 'x'"),
        (GRAPH | {"edges": [("u",)]}, "edge 1 is .* expected the names of two nodes"),
        (GRAPH | {"edges": 5}, "graph 1: the edges are 5; expected a list of pairs of names"),
        (GRAPH | {"edges": {"u": "v"}}, "graph 1: the edges are {'u': 'v'}; expected a list of pairs of names"),
    ):
        with pytest.raises(DataError, match=message):
            list(classifier.predictions([given]))


def test_the_attention_of_an_edge_is_that_of_the_model(classifier: NodeClassifier, tmp_path: Path) -> None:
    text = json.dumps(GRAPH)
    result = inspection.graph(classifier, text)
    weights = inspection.attention(classifier, text).trace.maps[0].weights.mean(0)  # (query, key)
    names = [node.node for node in result.nodes]
    assert names == ["u", "v", "w", "alone"]
    pairs = {(edge.node, edge.neighbor): edge.weight for edge in result.edges}
    assert pairs.keys() == {("u", "v"), ("v", "u"), ("v", "w"), ("w", "v")}
    for (node, neighbor), weight in pairs.items():
        assert weight == pytest.approx(float(weights[names.index(node), names.index(neighbor)]), abs=1e-6)
    for one in result.nodes:
        total = one.itself + sum(edge.weight for edge in result.neighbors(one.node))
        assert total == pytest.approx(1.0, abs=1e-5)
    assert result.nodes[3].itself == pytest.approx(1.0)
    assert "alone" in result.text() and result.save(tmp_path / "graph.svg").exists()
    with pytest.raises(ConfigError, match="layer: given 3, expected one of: 0"):
        inspection.graph(classifier, text, layer=3)
    with pytest.raises(ConfigError, match="head: given 2, expected at least 0 and less than 2"):
        inspection.graph(classifier, text, head=2)


def boxes_of(figure: Figure) -> list[Area]:
    """The nodes of the picture of a graph, without the squares of the legend."""
    return [mark for mark in figure.marks if isinstance(mark, Area) and mark.tip]


def test_nodes_have_the_color_of_their_label_in_the_legend_paler_where_it_is_less_probable() -> None:
    nodes = [DrawnNode("a", "red", 1.0), DrawnNode("b", "blue", 1.0), DrawnNode("c", "red", 1.0), DrawnNode("d", "red", 0.4)]
    figure = graph_figure(nodes, [], "", [], ["green", "blue", "red"])
    squares = [mark.color for mark in figure.marks if isinstance(mark, Area) and not mark.tip]
    assert [mark.text for mark in figure.marks if isinstance(mark, Label)][-3:] == ["green (0)", "blue (1)", "red (3)"]
    assert len(set(squares)) == 3 and [box.color for box in boxes_of(figure)][:3] == [squares[2], squares[1], squares[2]]
    assert boxes_of(figure)[3].color > squares[2] and boxes_of(figure)[3].tip == "d → red: 0.4000"


def test_the_picture_of_a_small_graph_has_equal_margins() -> None:
    for count in (1, 2, 3):
        figure = graph_figure(
            [DrawnNode(f"n{at}", "x", 0.5) for at in range(count)], [DrawnEdge(0, count - 1, 0.5)], "", ["x" * 60]
        )
        corners = [(box.points[0][0], box.points[2][0]) for box in boxes_of(figure)]
        assert min(left for left, _ in corners) == pytest.approx(figure.width - max(right for _, right in corners), abs=1.0)


def test_a_line_of_a_graph_has_the_color_of_its_weight_next_to_the_node_that_attends() -> None:
    nodes = [DrawnNode(name, "x", 0.5) for name in "abc"]
    figure = graph_figure(nodes, [DrawnEdge(0, 1, 0.5), DrawnEdge(1, 0, 0.3), DrawnEdge(2, 1, 0.2)], "", [])
    lines = [mark for mark in figure.marks if isinstance(mark, Polyline)]
    expected = ["#{:02x}{:02x}{:02x}".format(*color(weight, "blue")) for weight in (0.4, 0.6, 1.0)]
    assert [line.color for line in lines[1:4]] == expected  # after the half without a weight, from b to c
    places = {box.tip[0]: box.points[0] for box in boxes_of(figure)}
    for line, (own, other) in zip(lines[1:4], (("c", "b"), ("b", "a"), ("a", "b")), strict=True):
        assert math.dist(line.points[0], places[own]) < math.dist(line.points[0], places[other])


@pytest.mark.parametrize("count", [1, 2, 25, 60])
def test_boxes_of_a_graph_do_not_overlap_and_are_inside_the_picture(count: int) -> None:
    nodes = [DrawnNode(f"node {at}" * (1 + at % 2), "x", 0.5) for at in range(count)]
    hub = [DrawnEdge(0, at, 0.5) for at in range(1, count)]
    ring = [DrawnEdge(at, (at + 1) % count, 0.5) for at in range(count - 1)]
    for edges in (hub, ring, hub + ring, []):
        figure = graph_figure(nodes, edges, "", [])
        corners = [(*box.points[0], *box.points[2]) for box in boxes_of(figure)]
        assert len(corners) == count
        for at, (left, top, right, bottom) in enumerate(corners):
            assert left > 0 and top > 0 and right < figure.width and bottom < figure.height
            for other in corners[:at]:
                assert left >= other[2] or other[0] >= right or top >= other[3] or other[1] >= bottom


def test_a_run_without_graphs_has_no_such_picture(tiny_runs: dict[str, Path]) -> None:
    with pytest.raises(ConfigError, match="a run of task 'tagging' reads no graphs"):
        inspection.graph(heedful.load(tiny_runs["tagging"]), "the cat sees")


def test_nodes_without_features_are_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Atoms of small molecules: the label of an atom is its neighbor's element."""
    atoms = [("O", "C"), ("C", "N"), ("N", "O")]
    graphs = [
        {
            "nodes": [{"node": "1", "label": second, "element": first}, {"node": "2", "label": first, "element": second}],
            "edges": [["1", "2"]],
        }
        for first, second in atoms
    ]
    model = {"family": "encoder", "dim": 16, "layers": ["self-attention"], "heads": 2, "features": 0, "dropout": 0.0}
    recipe = write_tiny_recipe("node_classification", tmp_path)
    overrides = {"model": model, "tokenizer.kind": "spaces", "data.token": "element", "training.steps": 60}
    overrides |= {"training.schedule": {"name": "constant", "learning_rate": 1e-2, "warmup": 1}, "task.head_dropout": 0.0}
    changes = {name: value for name, value in overrides.items() if name != "model"}
    heedful.train(recipe, changes, run=tmp_path / "run", train=graphs, valid=graphs, test=graphs, model=model)
    assert NodeClassifier.load(tmp_path / "run").predict(graphs) == ["C O", "N C", "O N"]
