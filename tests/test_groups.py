"""A test with a group is called for every member, and a failure of any member is a failure that names it."""

from __future__ import annotations

import pytest
import torch
from groups import Group, call_for_members
from tiny import FAMILIES, VARIANTS, by_family

NUMBERS = Group("numbers", (1, 2, 3, 4), lambda number: 10 * number)


def test_every_member_is_called_with_the_same_seeds() -> None:
    called: list[tuple[int, float]] = []
    assert call_for_members(
        lambda number, more: called.append((number + more, float(torch.rand(())))), {"number": NUMBERS, "more": 1}
    )
    assert [number for number, _ in called] == [11, 21, 31, 41] and len({draw for _, draw in called}) == 1
    assert not call_for_members(lambda number: called.clear(), {"number": 1}) and called


def test_a_failure_names_all_members_that_fail_and_skips_others() -> None:
    def check(number: int) -> None:
        if number == 10:
            pytest.skip("not for this one")
        assert number != 20
        if number == 40:
            raise ValueError

    with pytest.raises(AssertionError) as raised:
        call_for_members(check, {"number": NUMBERS})
    assert raised.value.__notes__ == ["fails for 2 of 4: 2, 4"]


def test_a_group_is_skipped_if_all_members_are() -> None:
    with pytest.raises(pytest.skip.Exception):
        call_for_members(lambda number: pytest.skip("none"), {"number": NUMBERS})


def test_the_groups_of_families_have_all_variants() -> None:
    groups = by_family(VARIANTS)
    assert [str(group) for group in groups] == FAMILIES
    assert [variant for group in groups for variant in group.members] == VARIANTS and len(VARIANTS) > 100
