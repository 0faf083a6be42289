"""Rows: what search does to a state reaches every tensor of it, and ensembles of states, and nothing else."""

from __future__ import annotations

import torch

from heedful.nn.rows import State, clone, each_state, map_tree, select_rows, select_sources


def state() -> State:
    """Two sources, two rows each; every tensor says who it belongs to."""
    memory = {"layers": [(torch.tensor([0, 1]), torch.tensor([10, 11]))], "mask": None}
    return State(memory, {"buffers": [None, torch.tensor([0, 1, 10, 11])]}, filled=5)


def test_rows_are_selected_in_the_past_and_not_in_the_memory() -> None:
    chosen = select_rows(state(), torch.tensor([1, 1, 3, 2]))
    assert chosen.past["buffers"][1].tolist() == [1, 1, 11, 10]
    assert chosen.past["buffers"][0] is None
    assert chosen.memory["layers"][0][1].tolist() == [10, 11]
    assert chosen.filled == 5


def test_sources_are_selected_with_all_their_rows() -> None:
    chosen = select_sources(state(), torch.tensor([1, 1, 0]), beam=2)
    assert [part.tolist() for part in chosen.memory["layers"][0]] == [[1, 1, 0], [11, 11, 10]]
    assert chosen.past["buffers"][1].tolist() == [10, 11, 10, 11, 0, 1]
    assert chosen.filled == 5


def test_an_ensemble_is_selected_member_by_member_however_deep() -> None:
    members = (state(), (state(), state()._replace(filled=7)))
    first, (second, third) = select_rows(members, torch.tensor([3, 2, 1, 0]))
    assert [member.past["buffers"][1].tolist() for member in (first, second, third)] == [[11, 10, 1, 0]] * 3
    assert [member.filled for member in (first, second, third)] == [5, 5, 7]


def test_a_clone_has_its_own_past_and_shares_the_memory() -> None:
    original = state()
    copy = clone(original)
    copy.past["buffers"][1][0] = 99
    assert original.past["buffers"][1].tolist() == [0, 1, 10, 11]
    assert copy.memory is original.memory


def test_a_tree_keeps_its_shape() -> None:
    tree = {"a": [torch.tensor(1), None], "b": (torch.tensor(2), {"c": torch.tensor(3)})}
    doubled = map_tree(lambda x: 2 * x, tree)
    assert doubled == {"a": [torch.tensor(2), None], "b": (torch.tensor(4), {"c": torch.tensor(6)})}
    assert isinstance(doubled["b"], tuple)


def test_each_state_is_visited_however_deep() -> None:
    counted = each_state(lambda one: one._replace(filled=one.filled + 1), (state(), (state(), state()._replace(filled=7))))
    assert (counted[0].filled, counted[1][0].filled, counted[1][1].filled) == (6, 6, 8)
