"""The claims of graphs: distances between nodes, which decide what counts as near."""

from __future__ import annotations

import pytest
from claims.structures import DIAMETER, distances, right_by_distance

from heedful.data.graph_toys import GRAPHS
from heedful.data.graphs import GraphsConfig, read_graphs

pytestmark = pytest.mark.benchmark


def test_distances_are_numbers_of_edges() -> None:
    assert distances(6, [(0, 1), (2, 1), (2, 3), (0, 2), (4, 4)], 0) == [0, 1, 1, 2, -1, -1]
    (graph,) = GRAPHS["reachable"]("test", (1, 1, 1))
    mark = [node.features["mark"] for node in graph.nodes].index(1.0)
    assert max(distances(len(graph.nodes), graph.edges, mark)) == DIAMETER


def test_the_share_of_right_labels_is_counted_by_distance() -> None:
    """A predictor that always answers yes is right on the path of the mark, and wrong on the other."""
    data = GraphsConfig(form="graphs", builtin="reachable")

    class AlwaysYes:
        run = type("Run", (), {"data": data})

        def classify(self, graphs: object) -> list[object]:
            labels = ["yes"] * len(read_graphs(data, "test")[0].nodes)
            return [type("Found", (), {"labels": labels})] * len(read_graphs(data, "test"))

    assert right_by_distance(AlwaysYes()) == [0.0, *[1.0] * DIAMETER]
