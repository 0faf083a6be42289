"""Descriptions of types: `describe(Probability)` is "a number >= 0 and < 1".

Types are wrapped: Annotated[int, Gt(0)], `X | None`, aliases. `unwrap` removes the wrappers and returns their rules;
`branches`, `choices`, `fields` and `member` return the types inside. All of them accept any type and return an empty
result if it has none.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Len
from pydantic.fields import Field, FieldInfo

from heedful.config.base import Config, format_value

NOUNS: dict[Any, tuple[str, str]] = {
    bool: ("true or false", "true or false"),
    int: ("an integer", "integers"),
    float: ("a number", "numbers"),
    str: ("a string", "strings"),
    Path: ("a path", "paths"),
    Any: ("a value", "values"),
}
LISTS = (list, tuple, set, frozenset, Sequence)
TABLES = (dict, Mapping)
DEEPEST = 8  # nested tables; a config may contain itself
ANY_OF = "any of: "
PATTERNS = {r"^\S+$": "is one word, without spaces"}  # in words
BOUNDS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}


def describe(kind: Any, many: bool = False) -> str:
    """Describe a type: "an integer > 0", "a list of 2 strings", "a number or 'auto'"."""
    bare, rules = unwrap(kind)
    if is_union(bare):
        return " or ".join(dict.fromkeys(_describe_branch(branch, many) for branch in branches(bare)))
    if names := choices(bare):
        return f"{ANY_OF if many else 'one of: '}{', '.join(str(name) for name in names)}"
    if is_list(bare):
        return f"{'lists' if many else 'a list'} of {_describe_items(bare, rules)}"
    if is_table(bare):
        return "tables" if many else "a table"
    one, several = NOUNS.get(bare, (f"a {getattr(bare, '__name__', 'value')}", "values"))
    return (several if many else one) + _describe_rules(rules)


def unwrap(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return a type without Annotated, `| None` and aliases, and the rules of these wrappers."""
    rules: tuple[Any, ...] = ()
    while True:
        if get_origin(kind) is Annotated:
            kind, *more = get_args(kind)
            rules = (*_unfold(more), *rules)
        elif hasattr(kind, "__value__"):
            kind = kind.__value__
        elif is_union(kind) and len(real := [arg for arg in get_args(kind) if arg is not types.NoneType]) == 1:
            kind = real[0]
        else:
            return kind, rules


def rule(rules: Iterable[Any], name: str) -> Any:
    """The first rule of this name (gt, min_length, discriminator, …), or None."""
    return next((value for each in rules if (value := getattr(each, name, None)) is not None), None)


def branches(kind: Any) -> list[Any]:
    """The branches of a union, including nested unions; any other type is its only branch."""
    bare, _ = unwrap(kind)
    if not is_union(bare):
        return [kind]
    return [branch for arg in get_args(bare) if arg is not types.NoneType for branch in branches(arg)]


def choices(kind: Any) -> list[Any]:
    """The values of a Literal or an Enum."""
    bare, _ = unwrap(kind)
    if get_origin(bare) is Literal:
        return list(get_args(bare))
    return [each.value for each in bare] if isinstance(bare, type) and issubclass(bare, Enum) else []


def fields(kind: Any) -> dict[str, Any]:
    """The types of the fields of a config, by their names in TOML."""
    bare, _ = unwrap(kind)
    return _fields_of(bare) if is_config(bare) else {}


@cache
def _fields_of(config: type[Config]) -> dict[str, Any]:
    """Made once for each class: reading a config looks up each of its keys here."""
    kinds = {}
    for name, field in config.model_fields.items():
        rules = [*field.metadata, *([Field(discriminator=field.discriminator)] if field.discriminator else [])]
        kinds[field.alias or name] = Annotated[field.annotation, *rules] if rules else field.annotation
    return kinds


def member(kind: Any, part: int | str) -> Any:
    """The type of a key of a table or an item of a list; None if there is none, or if it depends on the branch."""
    bare, _ = unwrap(kind)
    inside = get_args(bare)
    if is_config(bare):
        return fields(bare).get(str(part))
    if is_table(bare) and inside:
        return inside[1]
    if is_list(bare) and inside and isinstance(part, int):
        return inside[min(part, len(inside) - 1)] if _is_fixed(bare) else inside[0]
    return None


def keys(kind: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every key of a schema, including nested tables."""
    for branch in branches(kind) if len(path) < DEEPEST else ():
        for name, inner in fields(branch).items():
            yield (*path, name)
            yield from keys(inner, (*path, name))


def is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, types.UnionType)


def is_config(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Config)


def is_table(kind: Any) -> bool:
    bare, _ = unwrap(kind)
    return is_config(bare) or (get_origin(bare) or bare) in TABLES


def is_list(kind: Any) -> bool:
    bare, _ = unwrap(kind)
    return (get_origin(bare) or bare) in LISTS


def _is_fixed(bare: Any) -> bool:
    return get_origin(bare) is tuple and Ellipsis not in get_args(bare)


def _unfold(rules: Iterable[Any]) -> Iterator[Any]:
    for each in rules:
        yield each
        if isinstance(each, FieldInfo):
            yield from each.metadata


def _describe_branch(kind: Any, many: bool) -> str:
    names = choices(kind)
    return " or ".join(format_value(name) for name in names) if names else describe(kind, many)


def _describe_items(bare: Any, rules: Sequence[Any]) -> str:
    items = [item for item in get_args(bare) if item is not Ellipsis] or [Any]
    if _is_fixed(bare) and any(item != items[0] for item in items):
        return f"{len(items)} values: {', '.join(describe(item) for item in items)}"
    size = [Len(len(items), len(items))] if _is_fixed(bare) else rules
    length, what = _describe_length(size), describe(items[0], many=True)
    if what.startswith(ANY_OF):
        return f"{length or 'any'} of: {what.removeprefix(ANY_OF)}"
    return f"{length} {what}".lstrip()


def _describe_length(rules: Sequence[Any]) -> str:
    least, most = rule(rules, "min_length"), rule(rules, "max_length")
    if least and most is not None:
        return f"{least}" if least == most else f"{least} to {most}"
    if most is not None:
        return f"at most {most}"
    if least:
        return "one or more" if least == 1 else f"at least {least}"
    return ""


def _describe_rules(rules: Sequence[Any]) -> str:
    bounds = {name: f"{bound:,}".removesuffix(".0") for name in BOUNDS if (bound := rule(rules, name)) is not None}
    limits = [f"{BOUNDS[name]} {bound}" for name, bound in bounds.items()]
    text = f" {' and '.join(limits)}" if limits else ""
    if bounds.keys() == {"ge", "le"}:
        text = f" from {bounds['ge']} to {bounds['le']}"
    if (step := rule(rules, "multiple_of")) is not None:
        text += f" that is a multiple of {step}"
    if (pattern := rule(rules, "pattern")) is not None:
        text += f" that {PATTERNS.get(pattern, f'matches {pattern!r}')}"
    if length := _describe_length(rules):
        text += f" of {length} characters"
    return text
