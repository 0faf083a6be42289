"""Special tokens are found by role, under any of their names and with any id."""

from __future__ import annotations

import pytest

from heedful.text.specials import ALIASES, MASK, SPECIALS, Specials, find_special


def test_padding_need_not_be_zero() -> None:
    vocabulary = {"<SOS>": 0, "[UNK]": 1, "is": 16, "<PAD>": 3, "the": 42, "<EOS>": 99}
    ids = {role: find_special(role, vocabulary) for role in Specials._fields}
    assert ids == {"start": 0, "unk": 1, "pad": 3, "end": 99, "mask": None}
    assert find_special("mask", {**vocabulary, "[MASK]": 103}) == 103


@pytest.mark.parametrize("role", Specials._fields)
def test_a_missing_role_is_none(role: str) -> None:
    assert find_special(role, {"dog": 0, "cat": 1}) is None


def test_no_name_has_two_roles_and_our_own_come_first() -> None:
    names = [name for aliases in ALIASES.values() for name in aliases]
    assert len(names) == len(set(names))
    assert tuple(ALIASES[role][0] for role in Specials._fields) == (*SPECIALS, MASK)
