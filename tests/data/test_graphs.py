"""Files of graphs: what is read, and one sentence with exit code 3 for each kind of broken file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tiny_tasks import write_tiny_recipe
from workshop import heed

from heedful.data.graphs import GraphsConfig, read_graphs, read_tables
from heedful.errors import DataError

NODES = "node,label,x,y\na,yes,1,0\nb,no,0,1\nc,yes,1,1\nd,no,0,2\n"
EDGES = "source,target\na,c\nb,d\n"
BROKEN: dict[str, tuple[str, bytes, list[str], str]] = {  # file, content, overrides, message
    "unknown node": (
        "edges.csv",
        b"source,target\na,c\nb,e\n",
        [],
        "edges.csv line 3: there is no node 'e'; expected",
    ),
    "missing column of edges": (
        "edges.csv",
        b"from,to\na,c\n",
        [],
        "line 1 has no column 'source', which a table of edges",
    ),
    "missing column of nodes": ("nodes.csv", b"name,label,x,y\na,yes,1,0\n", [], "line 1 has no column 'node'"),
    "missing cell": ("edges.csv", b"source,target\na\n", [], "edges.csv line 2 has 1 column; expected 2, as in the first line"),
    "not UTF-8": ("edges.csv", b"source,target\na,caf\xe9\n", [], "edges.csv line 2: byte 6 is not UTF-8"),
    "empty edges": ("edges.csv", b"", [], "edges.csv is empty; expected at least one line"),
    "empty nodes": ("nodes.csv", b"", [], "nodes.csv is empty; expected at least one line"),
    "header alone": ("nodes.csv", b"node,label,x,y\n", [], "nodes.csv has no nodes; expected a line for each"),
    "label missing": ("nodes.csv", NODES.replace("b,no", "b,").encode(), [], "line 3: node 'b' has no label; 1 of 4 have none"),
    "feature is no number": ("nodes.csv", NODES.replace("b,no,0", "b,no,z").encode(), [], "column 'x': 'z' is not a number"),
    "feature is not finite": ("nodes.csv", NODES.replace("b,no,0", "b,no,inf").encode(), [], "'inf' is out of range"),
    "too many nodes": ("nodes.csv", NODES.encode(), ["data.max_nodes=3"], "has 4 nodes; expected at most data.max_nodes = 3"),
    "node twice": ("nodes.csv", NODES.replace("d,no", "a,no").encode(), [], "line 5: node 'a' occurs twice; the first one is"),
    "node without a name": ("nodes.csv", NODES.replace("d,no", ",no").encode(), [], "line 5: the name of the node is missing"),
    "column twice": ("nodes.csv", NODES.replace("x,y", "x,x").encode(), [], "line 1 has two columns named 'x'"),
    "unknown label": ("nodes.csv", NODES.encode(), ['task.labels=["yes", "maybe"]'], "label 'no' of node 'b'; expected one of"),
    "one label": ("nodes.csv", NODES.replace(",no", ",yes").encode(), [], "have 1 label; expected two or more"),
    "unknown split": ("nodes.csv", NODES.encode(), ["SPLIT"], "split is '0'; expected train, valid, test, or nothing"),
}


def config(folder: Path, **options: Any) -> GraphsConfig:
    files = {"nodes": str(folder / "nodes.csv"), "edges": str(folder / "edges.csv")}
    return GraphsConfig(**({"form": "graphs", "train": files, "valid": files} | options))


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_one_sentence_and_exit_code_3(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, content, overrides, message = BROKEN[name]
    recipe = write_tiny_recipe("node_classification", tmp_path)
    if overrides == ["SPLIT"]:  # the column y as the split
        text = recipe.read_text().replace("[data.valid]", "[ignored]").split("[ignored]")[0]
        rest = recipe.read_text().split("[task]")[1]
        recipe.write_text(text.replace("[data]", '[data]\nsplit_column = "split"') + "\n[task]" + rest)
        content, overrides = NODES.replace("x,y", "x,split").encode(), ["model.features=1"]
    (tmp_path / file).write_bytes(content)
    assert heed("train", recipe, *overrides, "--run", tmp_path / "run") == 3
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_missing_column_has_a_hint_with_the_option_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("person,label\na,yes\n")
    (tmp_path / "b.csv").write_text("from,to\n")
    data = GraphsConfig(form="graphs", builtin="communities")
    for given, hint in (
        ({}, "set data.node to the column"),
        ({"node": "person", "graph": "club"}, "set data.graph to the column"),
    ):
        with pytest.raises(DataError) as error:
            read_tables(data.model_copy(update=given), tmp_path / "a.csv", None)
        assert str(error.value.hint).startswith(hint)
    with pytest.raises(DataError) as error:
        read_tables(data.model_copy(update={"node": "person"}), tmp_path / "a.csv", tmp_path / "b.csv")
    assert "source and target" in str(error.value.hint)


def test_tables_with_a_column_of_graphs_have_several(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("graph,node,label,x\ng,a,yes,1\ng,b,no,2\nh,a,no,3\n")
    (tmp_path / "edges.csv").write_text("graph,source,target\ng,b,a\ng,b,a\nh,a,a\n")
    first, second = read_graphs(config(tmp_path, graph="graph"), "train")
    assert [node.name for node in first.nodes] == ["a", "b"] and [node.name for node in second.nodes] == ["a"]
    assert first.edges == [(1, 0)] and second.edges == [(0, 0)]


def test_one_graph_has_the_nodes_of_all_splits(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("node,label,part\na,yes,train\nb,no,valid\nc,,\nd,no,test\n")
    (tmp_path / "edges.csv").write_text("source,target\na,b\n")
    given: dict[str, Any] = {
        "form": "graphs",
        "train": {"nodes": str(tmp_path / "nodes.csv"), "edges": str(tmp_path / "edges.csv")},
    }
    data = GraphsConfig(**given, split_column="part")
    for split in ("train", "valid", "test"):
        (graph,) = read_graphs(data, split)
        assert [node.part for node in graph.nodes] == ["train", "valid", None, "test"]
    (hashed,) = read_graphs(GraphsConfig(**given, parts=(0.5, 0.25, 0.25)), "train")
    assert {node.part for node in hashed.nodes} <= {"train", "valid", "test"}


def test_generated_graphs_have_at_most_max_nodes() -> None:
    counts = {"train": 20, "valid": 10, "test": 10}
    options: dict[str, Any] = {"form": "graphs", "builtin": "communities", "counts": counts}
    (graph,) = read_graphs(GraphsConfig(**options, max_nodes=40), "train")
    assert len(graph.nodes) == 40
    with pytest.raises(DataError, match=r"built-in communities train has 40 nodes; expected at most data\.max_nodes = 39"):
        read_graphs(GraphsConfig(**options, max_nodes=39), "train")


def test_graphs_that_are_in_two_splits_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = write_tiny_recipe("node_classification", tmp_path)  # with the same graph in all splits
    assert heed("data", "check", recipe, "--json") == 0
    train, valid, test = json.loads(capsys.readouterr().out)["corpora"]
    assert not train["problems"]
    for one in (valid, test):
        (found,) = one["problems"]
        assert (found["problem"], found["count"], found["action"]) == ("duplicate", 1, "kept")
        assert found["examples"][0]["text"].startswith("the same graph as ")
    text = recipe.read_text()
    end = text.index("[data.valid]"), text.index("[task]")
    recipe.write_text((text[: end[0]] + text[end[1] :]).replace("[data]", "[data]\nparts = [0.5, 0.5, 0.0]"))
    assert heed("data", "check", recipe, "--json") == 0
    assert not any(one["problems"] for one in json.loads(capsys.readouterr().out)["corpora"])


def test_a_missing_label_is_allowed_where_asked_for(tmp_path: Path) -> None:
    recipe = write_tiny_recipe("node_classification", tmp_path)
    (tmp_path / "nodes.csv").write_text(NODES.replace("b,no", "b,"))
    assert heed("train", recipe, "data.max_unusable=0.5", "training.steps=1", "--run", tmp_path / "run") == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train": {"file": "a", "nodes": "b"}}, "expected either nodes, with or without edges, or file"),
        ({"train": {"file": "a", "edges": "b"}}, "edges: given 'b', but has no effect because file has the edges"),
        ({"train": None}, "train: missing; expected a table with nodes or file, or data.builtin"),
        (
            {"split_column": "s", "parts": (0.5, 0.25, 0.25), "valid": None},
            "parts: given with data.split_column, expected one of them; remove",
        ),
        ({"split_column": "s"}, "valid: given a table, but has no effect because valid nodes are those of data.train"),
        ({"builtin": "reachable"}, "train: given a table, but has no effect because data.builtin is set"),
        ({"counts": {"train": 3}}, "counts: would have no effect without data.builtin"),
    ],
)
def test_options_that_do_not_fit_together_are_errors(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValidationError) as caught:
        config(tmp_path, **options)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (['model.position="sinusoidal"'], "model.position: given 'sinusoidal', but nodes have no order; expected 'none'"),
        (['model.layers=["self-attention", "lstm"]'], "model.layers: given 'lstm', which depends on the order of the nodes"),
        (['model.structure.kind="causal"'], "model.structure.kind: given 'causal', but nodes have no positions"),
        (["model.features=0"], "tokenizer.kind: given 'words'; without model.features each node is one token"),
        (['task.features=["x"]'], "model.features: given 2, expected 1, the number of task.features"),
        (["model.features=3"], "model.features is 3, but"),
    ],
)
def test_a_model_that_does_not_fit_is_an_error(
    overrides: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert heed("train", write_tiny_recipe("node_classification", tmp_path), *overrides, "--run", tmp_path / "run") == 2
    assert message in capsys.readouterr().err
