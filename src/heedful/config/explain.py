"""Rewrites pydantic's validation errors: one problem per mistake, with what was given and what was expected.

    model.heads: given 0, expected an integer > 0
    training.schedule: given 'cosin', expected one of: constant, cosine; did you mean 'cosine'?

The expected value is described from the type, so that it is complete and includes all bounds.
For a union, pydantic reports errors of every branch. We select one branch by the shape of the value (a table, a list, or a
scalar) and by the table's tag, validate against that branch alone, and report its errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

from pydantic import Discriminator, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from heedful.config.base import Config, Problem, Problems, format_value
from heedful.config.kinds import branches, choices, describe, fields, is_list, is_table, is_union, keys, member, rule, unwrap
from heedful.config.toml import write_key
from heedful.errors import nearest

ABSENT = object()  # no value was given

# Errors that the type alone does not explain.
EXPECTED = {
    "finite_number": "a finite number",
    "path_not_file": "the path of a file that exists",
    "path_not_directory": "the path of a folder that exists",
}


class Flag(str):
    """true or false where a number is expected: pydantic would accept it as 1 or 0, but not a string."""

    __repr__ = str.__str__


class Spot(NamedTuple):
    """A place in the schema, and the value given there."""

    path: tuple[str, ...]
    kind: Any
    given: object
    schema: Any  # of the root, to find a key that belongs elsewhere


def explain(schema: type[Config], given: Mapping[str, object], error: ValidationError) -> list[Problem]:
    return _explain(Spot((), schema, given, schema), error)


def mark_flags(schema: type[Config], given: Mapping[str, object]) -> dict[str, object]:
    """Replace true and false by a Flag where a number is expected."""
    marked = _mark(Spot((), schema, given, schema))
    assert isinstance(marked, dict), "a tree stays a tree"
    return marked


def _mark(spot: Spot) -> object:
    if isinstance(spot.given, bool):
        kinds = [unwrap(branch)[0] for branch in branches(spot.kind)]
        is_number = any(kind in (int, float) for kind in kinds) and not any(kind in (bool, str, Any) for kind in kinds)
        return Flag(format_value(spot.given)) if is_number else spot.given
    chosen = spot._replace(kind=_choose_branch(spot) if is_union(unwrap(spot.kind)[0]) else spot.kind)
    if isinstance(spot.given, Mapping):
        return {key: _mark_member(chosen, key, value) for key, value in spot.given.items()}
    if isinstance(spot.given, list | tuple):
        return [_mark_member(chosen, index, value) for index, value in enumerate(spot.given)]
    return spot.given


def _mark_member(spot: Spot, part: int | str, value: object) -> object:
    if not isinstance(value, bool | Mapping | list | tuple):
        return value  # most values: looking up their types takes milliseconds
    inner, unknown = _locate(spot, [part])
    return value if unknown else _mark(inner)


def _explain(start: Spot, error: ValidationError) -> list[Problem]:
    problems: dict[Problem, None] = {}  # branches of a union have the same problems: report each once
    for item in error.errors(include_url=False):
        problems.update(dict.fromkeys(_explain_item(start, item)))
    return list(problems)


def _explain_item(start: Spot, item: ErrorDetails) -> list[Problem]:
    spot, rest = _locate(start, item["loc"])
    if spot.given is ABSENT:
        spot = spot._replace(given=item["input"])
    if item["type"] == "extra_forbidden" and len(rest) == 1:
        return [_unknown_key(spot, str(rest[0]))]
    if len(rest) == 2 and rest[1] == "[key]":
        return [_unknown_choice(spot, str(rest[0]))]
    if item["type"] in ("value_error", "assertion_error") and not rest:
        return _refused(spot, item["ctx"]["error"])
    if item["type"] == "missing" and not rest:
        if isinstance(item["loc"][-1], int):  # an item: the list is too short
            return [_unexpected(_locate(start, item["loc"][:-1])[0])]
        return [Problem(write_key(spot.path), f"missing, expected {describe(spot.kind)}")]
    if is_union(unwrap(spot.kind)[0]):
        return _explain_union(spot)
    if item["type"] == "too_short" and isinstance(spot.given, Sequence) and len(spot.given) >= item["ctx"]["min_length"]:
        return []  # too short only without the invalid items, which have problems of their own
    if item["type"] in EXPECTED:
        return [Problem(write_key(spot.path), f"given {format_value(spot.given)}, expected {EXPECTED[item['type']]}")]
    return [_unexpected(spot)]


def _locate(spot: Spot, location: Sequence[int | str]) -> tuple[Spot, Sequence[int | str]]:
    """Follow pydantic's location as far as it names keys and items; return also the rest of it."""
    for depth, part in enumerate(location):
        inner = member(spot.kind, part)
        if inner is None or location[depth + 1 :] == ("[key]",):
            return spot, location[depth:]
        if isinstance(part, int) and isinstance(spot.given, Mapping):
            spot = spot._replace(kind=inner)  # one table, which the schema accepts as a list of one
            continue
        given: object = ABSENT
        if isinstance(spot.given, Mapping):
            given = spot.given.get(str(part), ABSENT)
        elif isinstance(spot.given, list | tuple) and isinstance(part, int) and part < len(spot.given):
            given = spot.given[part]
        spot = spot._replace(path=(*spot.path, str(part)), kind=inner, given=given)
    return spot, ()


def _unexpected(spot: Spot) -> Problem:
    names = [name for branch in branches(spot.kind) for name in choices(branch)]
    sentence = f"given {format_value(spot.given)}, expected {describe(spot.kind)}"
    return Problem(write_key(spot.path), sentence, _suggest(spot.given, names))


def _unknown_key(spot: Spot, name: str) -> Problem:
    path = (*spot.path, name)
    names = list(fields(spot.kind))
    if not names and name.isdigit():  # data.train.0.source, where data.train is one table
        table = write_key(spot.path)
        return Problem(write_key(path), f"{table} is one table, not a list; write {table}.KEY=VALUE without the number")
    # A key without its table, as in steps=200, is most likely the only key of that name below.
    below = {key for key in keys(spot.schema) if key[-1] == name} if not spot.path else set()
    suggestion = _suggest(name, names) or (write_key(below.pop()) if len(below) == 1 else None)
    sentence = "unknown key" if suggestion else f"unknown key; expected one of: {', '.join(names)}"
    return Problem(write_key(path), sentence, suggestion)


def _unknown_choice(spot: Spot, name: str) -> Problem:
    """A key that the key type of a dict does not allow."""
    kind = get_args(unwrap(spot.kind)[0])[0]
    sentence = f"unknown key; expected {describe(kind)}"
    return Problem(write_key((*spot.path, name)), sentence, _suggest(name, choices(kind)))


def _refused(spot: Spot, error: Exception) -> list[Problem]:
    """The problems that one of our validators raised for a table or a value."""
    where = write_key(spot.path)
    if isinstance(error, Problems):
        return [each._replace(path=".".join(filter(None, (where, each.path)))) for each in error.problems]
    sentence = str(error) if isinstance(spot.given, Mapping) else f"given {format_value(spot.given)}, {error}"
    return [Problem(where, sentence)]


def _explain_union(spot: Spot) -> list[Problem]:
    chosen = _choose_branch(spot)
    if isinstance(chosen, Problem):
        return [chosen]
    if chosen is not None:
        try:
            TypeAdapter(chosen).validate_python(spot.given)
        except ValidationError as error:
            return _explain(spot._replace(kind=chosen), error)
    return [_unexpected(spot)]


def _choose_branch(spot: Spot) -> Any:
    """Select the branch of a union for a value; None if it is ambiguous."""
    if isinstance(spot.given, Mapping):
        return _choose_table(spot, spot.given)
    if isinstance(spot.given, list | tuple):
        return next(filter(is_list, branches(spot.kind)), None)
    return None


def _choose_table(spot: Spot, given: Mapping[str, object]) -> Any:
    """Select a branch by its tag, else by how many of its keys were given; or return the problem of the tag."""
    tables = list(filter(is_table, branches(spot.kind)))
    declared = _discriminator(spot.kind)
    tag = declared or _shared_tag(tables)
    if tag and tag not in given and (untagged := rule(unwrap(spot.kind)[1], "untagged")):
        given = {tag: untagged, **given}
    if tag and (tag in given or declared):
        named = {name: table for table in tables for name in choices(fields(table).get(tag))}
        kind: Any = Literal[tuple(named)]
        if tag not in given:
            return Problem(write_key((*spot.path, tag)), f"missing, expected {describe(kind)}")
        if not any(given[tag] == name for name in named):
            return _unexpected(Spot((*spot.path, tag), kind, given[tag], spot.schema))
        return named[given[tag]]
    return max(tables, key=lambda table: len(fields(table).keys() & given.keys()), default=None)


def _discriminator(kind: Any) -> str | None:
    """The discriminator of a union, or of a union inside it."""
    bare, rules = unwrap(kind)
    tag = rule(rules, "discriminator")
    tag = tag.discriminator if isinstance(tag, Discriminator) else tag
    if isinstance(tag, str):
        return tag
    return next(filter(None, map(_discriminator, get_args(bare))), None) if is_union(bare) else None


def _shared_tag(tables: Sequence[Any]) -> str | None:
    """The key whose constant value distinguishes these tables, if there is one."""
    inside = [fields(table) for table in tables]
    return next((name for name in inside[0] if all(choices(each.get(name)) for each in inside)), None) if inside else None


def _suggest(given: object, names: Iterable[object]) -> str | None:
    if not isinstance(given, str):
        return None
    known = [name for name in names if isinstance(name, str)]
    return nearest(given, known) or nearest(given.lower(), known)
