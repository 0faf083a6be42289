"""Groups: one test that is called for each member, instead of thousands of tests that differ in one argument."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest
import torch


class Group(NamedTuple):
    """The value of an argument of a test that is called once for each member."""

    name: str
    members: tuple[Any, ...]
    make: Callable[[Any], Any]  # the argument of a member

    def __str__(self) -> str:
        return self.name


def set_seeds() -> None:
    random.seed(0)
    torch.manual_seed(0)


def call_for_members(test: Callable[..., object], given: Mapping[str, Any]) -> bool:
    """Call a test once for each member of its group, always with the same seeds; False if it has no group.

    All members are tried. A failure lists those that fail; the test is skipped if all of them are."""
    groups = {name: value for name, value in given.items() if isinstance(value, Group)}
    if not groups:
        return False
    ((name, group),) = groups.items()
    skipped: list[BaseException] = []
    failed: dict[str, BaseException] = {}
    for member in group.members:
        try:
            made = group.make(member)
            set_seeds()
            test(**dict(given) | {name: made})
        except pytest.skip.Exception as error:
            skipped.append(error)
        except (Exception, pytest.fail.Exception) as error:
            failed[str(member)] = error
    if failed:
        first = next(iter(failed.values()))
        first.add_note(f"fails for {len(failed)} of {len(group.members)}: {', '.join(failed)}")
        raise first
    if len(skipped) == len(group.members):
        raise skipped[0]
    return True
