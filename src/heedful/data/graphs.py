"""Graphs with a label for each node: [data] with form = "graphs".

    train = { nodes = "nodes.csv", edges = "edges.csv" }      comma- or tab-separated, with a header
    split_column = "split"               column of the nodes: train, valid, test, or nothing for a node without a label
                                         or: parts = [0.6, 0.2, 0.2], fractions of the nodes, by a hash of their names
                                         or: valid = {…} and test = {…}, graphs of their own

    nodes.csv       node,label,x,y                            other columns are features, one number each
                    a,red,0.5,-1
    edges.csv       source,target
                    a,b

    train = { file = "graphs.jsonl" }    a graph in each line:
                                         {"nodes": [{"node": "a", "label": "red", "x": 0.5}], "edges": [["a", "b"]]}
    graph = "graph"                      column of both tables, where they have several graphs

    builtin = "communities"              generated graphs (`graph_toys.py`), of as many nodes or graphs as `counts` says

An edge that occurs twice, or from a node to itself, changes nothing. A node without a label is an error, unless `max_unusable`
allows as many: then it is part of the graph, but neither learned from nor scored. Everything else that is wrong with a file is
an error with file and line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import model_validator

from heedful.config.base import Config, Count, PathName, Problem, Size, ZeroOrSmallCount, refuse, unused
from heedful.data.delimited import Row, read_rows
from heedful.data.fractions import PARTS, Fractions, fraction_problems
from heedful.data.graph_toys import GRAPHS, GraphToy
from heedful.data.hash_split import part_of
from heedful.data.json_text import parse_json
from heedful.data.sources import find_path
from heedful.data.splits import Counts
from heedful.data.unusable import LineProblem, Share, usable_text
from heedful.errors import DataError, nearest
from heedful.storage.reading import convert_command, likely_encoding, read_lines

MAX_VALUE = 1e30  # squares of larger numbers overflow in single precision
ENDS = ("source", "target")  # columns of edges
FORM = 'expected a graph: {"nodes": [{"node": …}, …], "edges": [[…, …], …]}'


class GraphFile(Config):
    """Tables of nodes and edges, or a file with a graph in each line."""

    nodes: PathName | None = None
    """Table of nodes, comma- or tab-separated, with a header, plain or .gz."""
    edges: PathName | None = None
    """Table of edges; default: there are none."""
    file: PathName | None = None
    """JSON, a graph in each line, instead of tables."""

    @model_validator(mode="after")
    def _one_of_both(self) -> GraphFile:
        if (self.nodes is None) == (self.file is None):
            refuse([Problem("nodes", "expected either nodes, with or without edges, or file")])
        refuse(unused(self, {"edges": "file has the edges as well"} if self.file is not None else {}))
        return self


class GraphsConfig(Config):
    form: Literal["graphs"]
    """Form of the data: graphs with a label for each node."""
    builtin: GraphToy | None = None
    """Generate these graphs."""
    counts: Counts | None = None
    """Number of nodes, or of graphs, of each split that are generated."""
    train: GraphFile | None = None
    """Graphs with the training nodes."""
    valid: GraphFile | None = None
    """Graphs for validation."""
    test: GraphFile | None = None
    """Graphs for testing."""
    split_column: str | None = None
    """Column of the nodes with their split, where one graph has train, valid and test nodes; default: none."""
    parts: Fractions | None = None
    """Divide the nodes of `train` into train, valid and test by a hash of their names: three fractions. Default: none."""
    node: str = "node"
    """Column of the names of the nodes."""
    label: str = "label"
    """Column of the labels."""
    token: str | None = None
    """Column of the token of each node, for a model without features; default: its name."""
    graph: str | None = None
    """Column of the graph that a node or an edge belongs to, where a table has several; default: one graph."""
    directed: bool = False
    """A node attends to the sources of its edges only; false: edges have no direction."""
    max_unusable: Share = 0.0
    """Maximum fraction of nodes without a label, which are then part of the graph only; more are an error."""
    max_nodes: Size = 4096
    """Maximum number of nodes of a graph: all pairs of them have an attention score."""
    batch: Count = 16
    """Graphs per batch."""
    pad_to_multiple_of: Size | Literal["auto"] = "auto"
    """Pad the number of nodes to a multiple of this, so that few shapes occur; 1: no extra padding; auto: 16 with CUDA graphs,
    else 1."""
    prefetch: ZeroOrSmallCount = 4
    """Batches prepared ahead in the background; 0: none."""

    @model_validator(mode="after")
    def _fits_together(self) -> GraphsConfig:
        problems = []
        if self.counts is not None and self.builtin is None:
            problems.append(Problem("counts", "would have no effect without data.builtin"))
        if self.builtin is None:
            missing = [name for name in ("train", "valid") if getattr(self, name) is None and not self.makes(name)]
            expected = "expected a table with nodes or file, or data.builtin"
            problems += [Problem(name, f"missing; {expected}") for name in missing]
        else:
            names = ("train", "valid", "test", "split_column", "parts", "node", "label", "graph", "directed", "max_unusable")
            problems += unused(self, dict.fromkeys(names, "data.builtin is set"))
        if self.split_column is not None and self.parts is not None:
            problems.append(Problem("parts", "given with data.split_column, expected one of them; remove one from the recipe"))
        if self.parts is not None:
            problems += [Problem("parts", text) for text in fraction_problems(self.parts)]
        no_effect = {name: f"{name} nodes are those of data.train" for name in ("valid", "test") if self.makes(name)}
        refuse([*problems, *unused(self, no_effect)])
        return self

    def makes(self, split: str) -> bool:
        """Whether the graphs of train have the nodes of this split, too."""
        divided = self.parts is not None and self.parts[PARTS.index(split)] > 0
        return self.train is not None and (self.split_column is not None or divided)

    def undivided(self) -> GraphsConfig:
        """The config of graphs whose nodes all belong to one split."""
        return self.model_copy(update={"split_column": None, "parts": None})

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of nodes that are no features."""
        return tuple(name for name in (self.node, self.label, self.split_column, self.graph, self.token) if name is not None)

    @property
    def max_length(self) -> int:
        return self.max_nodes

    @property
    def length_multiple(self) -> int:
        """`pad_to_multiple_of` as a number: 1 as long as "auto" is not resolved."""
        return 1 if self.pad_to_multiple_of == "auto" else self.pad_to_multiple_of

    @property
    def sides(self) -> tuple[int, int]:
        return 0, self.max_nodes


class Node(NamedTuple):
    place: str  # file and line
    name: str
    label: str | None  # None: not known
    part: str | None  # train, valid or test; None: not known, or it has no label
    values: Mapping[str, str]  # of all columns


class Graph(NamedTuple):
    place: str  # file, and line or name
    nodes: list[Node]
    edges: list[tuple[int, int]]  # indices of source and target, each pair once


NodeRow = tuple[str, dict[str, str]]  # place, value of each column
EdgeRow = tuple[str, str, str]  # place, source, target


def find_graphs(data: GraphsConfig, split: str) -> GraphFile | None:
    """The files of a split; None if it is generated, or there is no test set."""
    return data.train if data.makes(split) else getattr(data, split)


def has_split(data: GraphsConfig, split: str) -> bool:
    return data.builtin is not None or find_graphs(data, split) is not None


def files_of(given: GraphFile) -> list[Path]:
    return [find_path(name) for name in (given.nodes, given.edges, given.file) if name is not None]


def title_of(data: GraphsConfig, split: str) -> str:
    given = find_graphs(data, split)
    return f"built-in {data.builtin} {split}" if given is None else " + ".join(map(str, files_of(given)))


def read_graphs(data: GraphsConfig, split: str) -> list[Graph]:
    """The graphs with the nodes of a split."""
    given, data = find_graphs(data, split), data if data.makes(split) else data.undivided()
    if given is None:
        return toy_graphs(data, split)
    if given.file is not None:
        return read_jsonl(data, find_path(given.file))
    assert given.nodes is not None, "the config requires nodes or a file"
    return read_tables(data, find_path(given.nodes), None if given.edges is None else find_path(given.edges))


def unlabeled_nodes(data: GraphsConfig, graphs: Sequence[Graph]) -> list[Node]:
    """The nodes without a label, except those that belong to no split."""
    return [
        node
        for graph in graphs
        for node in graph.nodes
        if node.label is None and (data.split_column is None or node.part is not None)
    ]


def toy_graphs(data: GraphsConfig, split: str) -> list[Graph]:
    assert data.builtin is not None, "the config has a toy"
    counts = data.counts or Counts()
    drawn = GRAPHS[data.builtin](split, (counts.train, counts.valid, counts.test))
    place = f"built-in {data.builtin} {split}"
    for graph in drawn:
        refuse_too_many(len(graph.nodes), place, data)
    return [
        Graph(
            place,
            [
                Node(place, name, label, part, {data.node: name, **{key: repr(value) for key, value in features.items()}})
                for name, label, part, features in graph.nodes
            ],
            graph.edges,
        )
        for graph in drawn
    ]


def read_tables(data: GraphsConfig, nodes: Path, edges: Path | None) -> list[Graph]:
    """The graphs of a table of nodes and one of edges."""
    graph = {} if data.graph is None else {data.graph: "set data.graph to the column of the graph of each row"}
    node_rows = read_columns(nodes, {data.node: "set data.node to the column of the name of each node", **graph}, "node")
    grouped: dict[str, list[NodeRow]] = {}
    for place, values in node_rows:
        grouped.setdefault(values[data.graph] if data.graph is not None else "", []).append((place, values))
    if not grouped:
        raise DataError(f"{nodes} has no nodes; expected a line for each, after the header")
    edge_rows: dict[str, list[EdgeRow]] = {name: [] for name in grouped}
    ends = dict.fromkeys(ENDS, f"name the columns of the two nodes of each edge {' and '.join(ENDS)}, in line 1")
    for place, values in () if edges is None else read_columns(edges, {**ends, **graph}, "edge"):
        name = values[data.graph] if data.graph is not None else ""
        if name not in grouped:
            raise DataError(f"{place}: there is no graph {name!r:.40} in {nodes}; expected a graph that has nodes")
        edge_rows[name].append((place, values[ENDS[0]], values[ENDS[1]]))
    return [
        make_graph(data, f"{nodes}, graph {name!r:.40}" if name else str(nodes), rows, edge_rows[name])
        for name, rows in grouped.items()
    ]


def read_columns(path: Path, wanted: Mapping[str, str], what: str) -> Iterator[NodeRow]:
    """Yield the value of each column of each line; wanted: columns that the table must have, and what to do without each."""
    names: list[str] = []
    for row in read_rows(path):
        if not names:
            names = column_names(row, wanted, what)
        elif len(row.cells) != len(names):
            count = f"{len(row.cells)} column{'s' * (len(row.cells) != 1)}"
            raise DataError(f"{row.place} has {count}; expected {len(names)}, as in the first line")
        else:
            yield row.place, dict(zip(names, row.cells, strict=True))


def column_names(header: Row, wanted: Mapping[str, str], what: str) -> list[str]:
    """The names of the first line; an error where one is missing, empty or not unique."""
    for at, name in enumerate(header.cells):
        if not name or name in header.cells[:at]:
            problem = f"has two columns named {name!r:.40}" if name else f"has no name for column {at + 1}"
            raise DataError(f"{header.place} {problem}; expected a header with a different name for each column")
    for name, hint in wanted.items():
        if name not in header.cells:
            close = nearest(name, header.cells)
            known = ", ".join(header.cells)
            raise DataError(
                f"{header.place} has no column {name!r}, which a table of {what}s needs; its columns are: {known:.200}",
                hint=f"did you mean {close!r}?" if close else hint,
            )
    return header.cells


def read_jsonl(data: GraphsConfig, path: Path) -> list[Graph]:
    """The graphs of a file with one in each line."""
    graphs = []
    for number, line in enumerate(read_lines(path), start=1):
        place = f"{path} line {number}"
        text = usable_text(line, number)
        if isinstance(text, LineProblem):
            fix = f"convert it: {convert_command(str(path), likely_encoding(line))}" if text.kind == "utf8" else None
            raise DataError(f"{place}: {text.text}", hint=fix)
        if text.strip():
            graphs.append(parse_graph(data, parse_json(text, place, expected=FORM), place))
    if not graphs:
        raise DataError(f"{path} has no graphs; expected one in each line")
    return graphs


def parse_graph(data: GraphsConfig, content: Any, place: str) -> Graph:
    """The graph of an object: {"nodes": [{"node": "a", "x": 0.5}], "edges": [["a", "b"]]}."""
    nodes = content.get("nodes") if isinstance(content, Mapping) else None
    if not isinstance(nodes, Sequence) or isinstance(nodes, str):
        raise DataError(f"{place} is {content!r:.60}; {FORM}")
    rows: list[NodeRow] = []
    for at, node in enumerate(nodes, start=1):
        if not isinstance(node, Mapping) or data.node not in node:
            raise DataError(f"{place}, node {at} is {node!r:.60}; expected an object with {data.node!r} and its other columns")
        rows.append((f"{place}, node {at}", {str(key): cell_of(value) for key, value in node.items()}))
    edges: list[EdgeRow] = []
    given = content.get("edges")
    if not isinstance(given, Sequence | None) or isinstance(given, str):
        raise DataError(f"{place}: the edges are {given!r:.60}; expected a list of pairs of names")
    for at, edge in enumerate(given or (), start=1):
        if not isinstance(edge, Sequence) or isinstance(edge, str) or len(edge) != 2:
            raise DataError(f"{place}, edge {at} is {edge!r:.60}; expected the names of two nodes")
        edges.append((f"{place}, edge {at}", cell_of(edge[0]), cell_of(edge[1])))
    return make_graph(data, place, rows, edges)


def cell_of(value: Any) -> str:
    return "" if value is None else str(value).strip()


def make_graph(data: GraphsConfig, place: str, rows: Sequence[NodeRow], edges: Iterable[EdgeRow]) -> Graph:
    """The graph of rows that have been read; an error for nodes that occur twice, too many nodes and unknown nodes."""
    if not rows:
        raise DataError(f"{place} has no nodes; expected at least one")
    refuse_too_many(len(rows), place, data)
    places: dict[str, tuple[int, str]] = {}
    nodes: list[Node] = []
    for where, values in rows:
        name = values[data.node]
        if not name:
            raise DataError(f"{where}: the name of the node is missing; expected a value of {data.node!r}")
        if name in places:
            raise DataError(f"{where}: node {name!r:.40} occurs twice; the first one is {places[name][1]}")
        places[name] = len(nodes), where
        nodes.append(Node(where, name, values.get(data.label) or None, node_part(data, where, name, values), values))
    pairs: dict[tuple[int, int], None] = {}
    for where, *ends in edges:
        for name in ends:
            if name not in places:
                close = nearest(name, list(islice(places, 10_000)))
                raise DataError(
                    f"{where}: there is no node {name!r:.40}; expected the names of two nodes of {place}",
                    hint=f"did you mean {close!r}?" if close else "correct the edge, or add the node",
                )
        first, second = (places[name][0] for name in ends)
        pairs[first, second] = None
    return Graph(place, nodes, list(pairs))


def refuse_too_many(nodes: int, place: str, data: GraphsConfig) -> None:
    if nodes > data.max_nodes:
        raise DataError(
            f"{place} has {nodes:,} nodes; expected at most data.max_nodes = {data.max_nodes:,}",
            hint="divide it into smaller graphs, or set a larger data.max_nodes: memory grows with its square",
        )


def node_part(data: GraphsConfig, place: str, name: str, values: Mapping[str, str]) -> str | None:
    """The split of a node, where one graph has several."""
    if data.parts is not None:
        return part_of(name, data.parts)
    if data.split_column is None:
        return None
    if data.split_column not in values:
        raise DataError(f"{place} has no {data.split_column!r}, data.split_column; expected train, valid, test, or nothing")
    part = values[data.split_column]
    if part and part not in PARTS:
        close = nearest(part, PARTS)
        raise DataError(
            f"{place}: {data.split_column} is {part!r:.40}; expected train, valid, test, or nothing for a node without a label",
            hint=f"did you mean {close!r}?" if close else None,
        )
    return part or None


def feature_names(data: GraphsConfig, graphs: Sequence[Graph]) -> tuple[str, ...]:
    """The columns of the first node that are features."""
    return tuple(name for name in graphs[0].nodes[0].values if name not in data.columns)


def feature_vector(node: Node, names: Sequence[str]) -> list[float]:
    """The features of a node; an error for one that is missing or not a number."""
    return [parse_feature(node, name) for name in names]


def parse_feature(node: Node, name: str) -> float:
    if name not in node.values:
        known = ", ".join(node.values)
        raise DataError(f"{node.place}: node {node.name!r:.40} has no feature {name!r}; its columns are: {known:.200}")
    cell = node.values[name]
    try:
        value = float(cell)
    except ValueError:
        raise DataError(f"{node.place}, column {name!r}: {cell!r:.40} is not a number; expected a number") from None
    if not math.isfinite(value) or abs(value) > MAX_VALUE:
        raise DataError(f"{node.place}, column {name!r}: {cell!r:.40} is out of range; expected a number within ±{MAX_VALUE:g}")
    return value
