"""Traversal of config classes: nested configs and numeric options."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from heedful.config import kinds
from heedful.config.base import Config


def every_config(base: type[Config] = Config) -> Iterator[type[Config]]:
    """Every config class that has been imported."""
    for part in base.__subclasses__():
        yield part
        yield from every_config(part)


def option_configs(kind: Any) -> list[type[Config]]:
    """Every config inside a type, including itself."""
    configs: dict[type[Config], None] = {}
    waiting = [kind]
    while waiting:
        bare, _ = kinds.unwrap(waiting.pop())
        if kinds.is_config(bare) and bare not in configs:
            configs[bare] = None
            waiting += kinds.fields(bare).values()
        elif not kinds.is_config(bare):
            waiting += get_args(bare)
    return list(configs)


def numbers(kind: Any) -> Iterator[tuple[type, tuple[Any, ...]]]:
    """Every int and float inside a type, with its rules."""
    bare, rules = kinds.unwrap(kind)
    if bare in (int, float):
        yield bare, rules
    for inner in get_args(bare):
        yield from numbers(inner)


def numeric_options(kind: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all numeric options."""
    for branch in kinds.branches(kind):
        for name, inner in kinds.fields(branch).items():
            bare = [kinds.unwrap(each)[0] for each in kinds.branches(inner)]
            if int in bare or float in bare:
                yield (*path, name)
            elif any(map(kinds.is_config, bare)):
                yield from numeric_options(inner, (*path, name))
