"""Walking through the options of a config: which configs lie inside it, and which numbers their options hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from heedful.schema import Config
from heedful.settings import kinds


def every_config(base: type[Config] = Config) -> Iterator[type[Config]]:
    """Every config class that has been imported."""
    for part in base.__subclasses__():
        yield part
        yield from every_config(part)


def option_configs(kind: Any) -> list[type[Config]]:
    """Every config that a type holds, itself included."""
    found: dict[type[Config], None] = {}
    waiting = [kind]
    while waiting:
        bare, _ = kinds.unwrap(waiting.pop())
        if kinds.is_config(bare) and bare not in found:
            found[bare] = None
            waiting += kinds.fields(bare).values()
        elif not kinds.is_config(bare):
            waiting += get_args(bare)
    return list(found)


def numbers(kind: Any) -> Iterator[tuple[type, tuple[Any, ...]]]:
    """int or float, with its rules, wherever a type holds one."""
    bare, rules = kinds.unwrap(kind)
    if bare in (int, float):
        yield bare, rules
    for inner in get_args(bare):
        yield from numbers(inner)


def numeric_options(kind: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all options that are a number."""
    for branch in kinds.branches(kind):
        for name, inner in kinds.fields(branch).items():
            bare = [kinds.unwrap(each)[0] for each in kinds.branches(inner)]
            if int in bare or float in bare:
                yield (*path, name)
            elif any(map(kinds.is_config, bare)):
                yield from numeric_options(inner, (*path, name))
