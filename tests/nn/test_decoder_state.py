"""Operations of search reach every tensor of a state and of an ensemble of states, and nothing else."""

from __future__ import annotations

import pytest
import torch

from heedful.nn.decoder_state import (
    State,
    allocate,
    clone,
    compact,
    copy_states,
    expand_rows,
    insert_sources,
    map_states,
    map_tree,
    select_rows,
    select_sources,
)


def state() -> State:
    """Two sources, two rows each; every value names its source and row."""
    memory = {"layers": [(torch.tensor([0, 1]), torch.tensor([10, 11]))], "mask": None}
    row_state = {"buffers": [None, torch.tensor([0, 1, 10, 11])]}
    kv_cache = [torch.tensor([[0, 1, 2, 3], [10, 11, 12, 13]])]  # (source, slot)
    owned_slots = torch.tensor([[1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 0, 0], [1, 0, 0, 1]]).bool()  # (row, slot)
    return State(memory, row_state, kv_cache, owned_slots, filled=4)


def test_selecting_rows_reorders_row_state_and_keeps_the_cache() -> None:
    chosen = select_rows(state(), torch.tensor([1, 1, 3, 2]))
    assert chosen.row_state["buffers"][1].tolist() == [1, 1, 11, 10]
    assert chosen.row_state["buffers"][0] is None
    assert chosen.owned_slots is not None
    assert chosen.owned_slots.int().tolist() == [[0, 1, 0, 1], [0, 1, 0, 1], [1, 0, 0, 1], [1, 0, 0, 0]]
    assert chosen.memory["layers"][0][1].tolist() == [10, 11]
    assert chosen.kv_cache[0].tolist() == [[0, 1, 2, 3], [10, 11, 12, 13]]
    assert chosen.filled == 4


def test_expanded_rows_are_equal() -> None:
    wide = expand_rows(state(), beam=2)
    assert wide.row_state["buffers"][1].tolist() == [0, 0, 1, 1, 10, 10, 11, 11]
    assert wide.owned_slots is not None and len(wide.owned_slots) == 8
    assert wide.kv_cache[0].tolist() == [[0, 1, 2, 3], [10, 11, 12, 13]]


def test_sources_are_selected_with_all_their_rows() -> None:
    chosen = select_sources(state(), torch.tensor([1, 1, 0]), beam=2)
    assert [part.tolist() for part in chosen.memory["layers"][0]] == [[1, 1, 0], [11, 11, 10]]
    assert chosen.row_state["buffers"][1].tolist() == [10, 11, 10, 11, 0, 1]
    assert chosen.kv_cache[0][:, 0].tolist() == [10, 10, 0]
    assert chosen.owned_slots is not None
    assert chosen.owned_slots[:, 3].int().tolist() == [0, 1, 0, 1, 0, 1]


def test_selecting_applies_to_every_member_of_a_nested_ensemble() -> None:
    members = (state(), (state(), state()._replace(filled=7)))
    first, (second, third) = select_rows(members, torch.tensor([3, 2, 1, 0]))
    assert [member.row_state["buffers"][1].tolist() for member in (first, second, third)] == [[11, 10, 1, 0]] * 3
    assert [member.filled for member in (first, second, third)] == [4, 4, 7]


def test_an_inserted_source_replaces_the_old_one_completely() -> None:
    new = State({"layers": [(torch.tensor([7]), torch.tensor([17]))], "mask": None}, {"buffers": [None, torch.tensor([70])]})
    old = (state(), state())
    insert_sources(old, (new, new), torch.tensor([1]), beam=2)
    for member in old:
        assert [part.tolist() for part in member.memory["layers"][0]] == [[0, 7], [10, 17]]
        assert member.row_state["buffers"][1].tolist() == [0, 1, 70, 70]
        assert member.owned_slots is not None
        assert member.owned_slots.int().tolist() == [[1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0]]
        assert member.filled == 4


def test_an_inserted_source_brings_its_prompt_and_its_memory_is_padded() -> None:
    old = state()._replace(memory=torch.full((2, 3), 5), reserved=2)
    row_state, kv_cache = {"buffers": [None, torch.tensor([70])]}, [torch.tensor([[6, 7]])]
    prompt = State(torch.tensor([[8, 9]]), row_state, kv_cache, torch.ones(1, 2).bool())
    insert_sources(old, prompt, torch.tensor([0]), beam=2)
    assert old.memory.tolist() == [[8, 9, 0], [5, 5, 5]]
    assert old.kv_cache[0].tolist() == [[6, 7, 0, 0], [10, 11, 12, 13]]
    assert old.owned_slots is not None and old.owned_slots[:2].int().tolist() == [[1, 1, 0, 0]] * 2


def test_inserting_a_longer_source_is_an_error() -> None:
    with pytest.raises(AssertionError, match="does not fit"):
        insert_sources(State(torch.zeros(1, 2), None), State(torch.zeros(1, 3), None), torch.tensor([0]), beam=1)


def test_compacting_keeps_slots_of_active_rows_in_order_and_every_prompt() -> None:
    """Of four slots the first source's rows own 0, 2 and 1, 3; the second's own 0 and 0, 3."""
    every_row, some_rows = torch.ones(2, 2).bool(), torch.tensor([[1, 0], [1, 1]]).bool()
    (all_kept,) = compact((state(),), every_row)
    assert all_kept.filled == 4 and all_kept.kv_cache[0].tolist() == [[0, 1, 2, 3], [10, 13, 11, 12]]
    after = compact(state(), some_rows)
    assert after.filled == 2
    assert after.kv_cache[0][:, :2].tolist() == [[0, 2], [10, 13]]
    assert after.owned_slots is not None
    assert after.owned_slots.int().tolist() == [[1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0]]
    prompted = compact(state()._replace(reserved=1), some_rows)
    assert prompted.filled == 2 and prompted.kv_cache[0][:, :2].tolist() == [[0, 2], [10, 13]]


def test_tokens_get_their_own_slots_after_the_prompt() -> None:
    blank = State(None, None, None, torch.zeros(4, 7, dtype=torch.bool), filled=3)
    real = torch.tensor([[1, 1], [1, 0], [0, 1], [1, 1]]).bool()
    owned_slots, slots = allocate(blank, 2, real, real)
    assert slots == slice(3, 7)
    expected = [[1, 1, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 1, 1]]
    assert owned_slots[:, 3:].int().tolist() == expected and not owned_slots[:, :3].any()
    turning = State(None, None, None, torch.ones(4, 7, dtype=torch.bool), filled=torch.tensor(5), reserved=1)
    owned_slots, slots = allocate(turning, 2, real, real)
    assert isinstance(slots, torch.Tensor) and slots.tolist() == [5, 6, 1, 2]
    assert owned_slots[:, [5, 6, 1, 2]].int().tolist() == expected
    with pytest.raises(AssertionError, match="the cache has 7 slots, but 8 tokens were given"):
        allocate(blank._replace(filled=4), 2, real, None)


def test_a_new_state_is_copied_into_the_tensors_of_an_old_one() -> None:
    old = (state()._replace(filled=torch.tensor(4)), state())
    tensors = [old[0].owned_slots, old[0].row_state["buffers"][1], old[0].filled]
    new = select_rows(old, torch.tensor([1, 0, 3, 2]))
    copy_states(old, (new[0]._replace(filled=new[0].filled + 2), new[1]))
    assert old[0].owned_slots is tensors[0] and old[0].owned_slots.equal(new[0].owned_slots)
    assert old[0].row_state["buffers"][1] is tensors[1] and tensors[1].tolist() == [1, 0, 11, 10]
    assert old[0].filled is tensors[2] and int(tensors[2]) == 6


def test_a_clone_copies_row_state_and_cache_and_shares_the_memory() -> None:
    original = state()
    copy = clone(original)
    copy.row_state["buffers"][1][0] = 99
    copy.kv_cache[0][0, 0] = 99
    copy.owned_slots[0, 1] = True
    assert original.row_state["buffers"][1].tolist() == [0, 1, 10, 11]
    assert original.kv_cache[0][0, 0] == 0 and original.owned_slots is not None and not original.owned_slots[0, 1]
    assert copy.memory is original.memory


def test_map_tree_keeps_the_structure() -> None:
    tree = {"a": [torch.tensor(1), None], "b": (torch.tensor(2), {"c": torch.tensor(3)})}
    doubled = map_tree(lambda x: 2 * x, tree)
    assert doubled == {"a": [torch.tensor(2), None], "b": (torch.tensor(4), {"c": torch.tensor(6)})}
    assert isinstance(doubled["b"], tuple)


def test_map_states_visits_every_state_of_a_nested_ensemble() -> None:
    counted = map_states(lambda s: s._replace(filled=s.filled + 1), (state(), (state(), state()._replace(filled=7))))
    assert (counted[0].filled, counted[1][0].filled, counted[1][1].filled) == (5, 5, 8)
