"""Settings: read a TOML file and overrides into one validated config, with the origin of every value.

    read_settings(Run, Path("recipes/x.toml"), ["training.steps=200"])
        .config                      the validated Run
        .origins["training.steps"]   "override", "file x.toml:12" or "default"

Commands pass `origin="command line"`, so that messages say where the value was set.

One ConfigError reports all problems, each with its place, its dotted path, what was given and what was expected.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar, cast

from pydantic import ValidationError

from heedful.config.base import Config, Problem, plain
from heedful.config.explain import explain, mark_flags
from heedful.config.given import (
    ARGUMENT,
    COMMAND_LINE,
    OVERRIDE,
    Given,
    Parts,
    Place,
    apply_overrides,
    parse_value,
    read_file,
    remove_key,
    set_key,
)
from heedful.config.kinds import describe
from heedful.config.options import description_of, kind_of
from heedful.config.paths import resolve_beside
from heedful.config.toml import split_key, spread, write_key
from heedful.errors import ConfigError

ConfigType = TypeVar("ConfigType", bound=Config)

OVERRIDDEN = {COMMAND_LINE: "on the command line", OVERRIDE: "in the overrides", ARGUMENT: "in the arguments"}
SHOWN_WIDTH, ORIGIN_COLUMN = 80, 40  # of the output of `show`


@dataclass(frozen=True)
class Settings(Generic[ConfigType]):
    config: ConfigType
    origins: dict[str, str]  # {dotted path: origin} of every leaf of plain(config)


class Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING = Missing()  # in a difference: this side has no such option


def read_settings(
    schema: type[ConfigType],
    path: Path | None,
    overrides: Sequence[str] = (),
    *,
    origin: str = OVERRIDE,
    beside: Path | None = None,
) -> Settings[ConfigType]:
    """Read a file and overrides; beside: the folder that relative paths of the file are resolved against first."""
    given = replace(read_file(path) if path else Given(None, {}), origin=origin)
    if beside is not None:
        given = replace(given, tree=cast(dict[str, object], resolve_beside([schema], given.tree, beside)))
    malformed = apply_overrides(given, overrides)
    config, invalid = _check(schema, given)
    problems = [(Place(None, origin=origin), problem) for problem in malformed]
    problems += [(place, problem) for place, problem in _placed(schema, given, invalid)]
    if config is None or problems:
        raise _report(path, problems)
    return Settings(config, {leaf: _origin(given, _parts(leaf)) for leaf in flatten(plain(config))})


def show(settings: Settings[ConfigType], *, every: bool = False) -> list[str]:
    """Format every option as TOML with its origin, and its description and allowed values as comments below it:

    model.window = 8                        # file multi30k.toml:12
        # restricted self-attention: number of tokens attended to; 0: all
        # an integer from 0 to 1,000,000

    Options that have no effect are omitted, unless `every` is set.
    """
    tree = settings.config.model_dump(mode="json") if every else plain(settings.config)
    lines: list[str] = []
    for leaf, value in flatten(tree).items():
        option = f"# {leaf} is not set" if value is None else f"{leaf} = {spread(value, SHOWN_WIDTH - len(leaf) - 3)}"
        origin = f"# {settings.origins.get(leaf, 'default')}"
        fits = max(len(option.rpartition("\n")[2]), ORIGIN_COLUMN) + 2 + len(origin) <= SHOWN_WIDTH
        lines += f"{option:<{ORIGIN_COLUMN}}  {origin}".splitlines() if fits else [*option.splitlines(), f"    {origin}"]
        lines += [line for text in about(settings.config, leaf) for line in _comment(text)]
    return lines


def about(config: Config, leaf: str) -> list[str]:
    """The description of an option, if it has one, and its allowed values."""
    parts = _parts(leaf)
    kind = kind_of(config, parts)
    return [text for text in (description_of(config, parts), None if kind is None else describe(kind)) if text]


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, SHOWN_WIDTH, initial_indent="    # ", subsequent_indent="    #   ", break_on_hyphens=False)


def difference(a: Mapping[str, object], b: Mapping[str, object]) -> list[tuple[str, object, object]]:
    """(dotted path, value in a or MISSING, value in b or MISSING) where two trees differ; None counts as missing."""
    left, right = ({k: v for k, v in flatten(tree).items() if v is not None} for tree in (a, b))
    pairs = [(leaf, left.get(leaf, MISSING), right.get(leaf, MISSING)) for leaf in {**left, **right}]
    return [(leaf, before, after) for leaf, before, after in pairs if before != after]


def flatten(tree: Mapping[str, object]) -> dict[str, object]:
    """{dotted path: value} of the leaves: scalars, lists of scalars, and empty tables."""
    return {write_key(parts): value for parts, value in _leaves(tree, ())}


def schema_json(schema: type[Config]) -> str:
    """JSON Schema, for completion and validation in editors."""
    described = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema.model_json_schema()}
    return json.dumps(described, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _leaves(value: object, path: Parts) -> Iterator[tuple[Parts, object]]:
    if isinstance(value, list | tuple) and value and all(isinstance(item, Mapping) for item in value):
        value = {str(index): item for index, item in enumerate(value)}
    if isinstance(value, Mapping) and (value or not path):
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    else:
        yield path, value


def _parts(path: str) -> Parts:
    return split_key(path) or ()


def _origin(given: Given, parts: Parts) -> str:
    path = given.find(parts)
    if path is None:
        return "default"
    place = given.place(path)
    return f"file {Place(Path(place.path.name), place.line)}" if place.path else str(place)


def _check(schema: type[ConfigType], given: Given) -> tuple[ConfigType | None, list[Problem]]:
    """Return the config, or the problems. An override that is invalid as a TOML value is tried as text:
    `name=2016` is a number in TOML, but the option may be a string."""
    config, problems = _validate(schema, given.tree)
    for parts, text in given.overrides.items():
        path = write_key(parts)
        if path in _paths(problems) and not isinstance(parse_value(text), dict | list | str):
            as_text = deepcopy(given.tree)
            set_key(as_text, parts, text)
            retried, remaining = _validate(schema, as_text)
            if path not in _paths(remaining):
                config, problems = retried, remaining
                set_key(given.tree, parts, text)
    return _drop_ineffective(schema, given, config, problems)


def _placed(schema: type[Config], given: Given, problems: Sequence[Problem]) -> list[tuple[Place, Problem]]:
    """Add the place of each problem. A problem that the file alone does not have is caused by an override, which may be
    that of another option, such as a dimension that the file's number of heads does not divide."""
    in_file = _validate(schema, read_file(given.path).tree)[1] if given.path and given.overrides else problems
    placed = []
    for problem in problems:
        parts = _parts(problem.path)
        own = problem in in_file or any(other[: len(parts)] == parts[: len(other)] for other in given.overrides if parts)
        placed.append((given.place(parts) if own else _place_of_conflict(schema, given, problem), problem))
    return placed


def _place_of_conflict(schema: type[Config], given: Given, problem: Problem) -> Place:
    """The overrides that each alone cause the problem, and the line of the option that they conflict with."""
    causes = []
    for parts, text in given.overrides.items():
        alone = read_file(given.path).tree if given.path else {}
        with suppress(IndexError, ValueError):  # an item of a list that another override sets
            set_key(alone, parts, parse_value(text))
        if problem in _validate(schema, alone)[1]:
            causes.append(f"{write_key(parts)}={text:.40}")
    option = given.find(_parts(problem.path))
    place = given.place(option) if option else None
    where = f" conflicts with {place}" if place and place.path and place.line and len(causes) == 1 else ""
    return Place(None, origin=given.origin, conflict=f"{' and '.join(causes)}{where}")


def _drop_ineffective(
    schema: type[ConfigType], given: Given, config: ConfigType | None, problems: list[Problem]
) -> tuple[ConfigType | None, list[Problem]]:
    """Drop options of the file that an override left without effect: an override cannot remove a key."""
    dropped = {path for path in _ineffective(problems) if given.place(_parts(path)).path is not None}
    if given.path is None or not given.overrides or not dropped:
        return config, problems
    dropped -= _ineffective(_validate(schema, read_file(given.path).tree)[1])  # mistakes of the file itself stay
    for path in dropped:
        remove_key(given.tree, _parts(path))
    return _drop_ineffective(schema, given, *_validate(schema, given.tree)) if dropped else (config, problems)


def _ineffective(problems: Iterable[Problem]) -> set[str]:
    return {problem.path for problem in problems if problem.has_no_effect}


def _paths(problems: Iterable[Problem]) -> set[str]:
    return {problem.path for problem in problems}


def _validate(schema: type[ConfigType], tree: Mapping[str, object]) -> tuple[ConfigType | None, list[Problem]]:
    marked = mark_flags(schema, tree)
    try:
        return schema.model_validate(marked), []
    except ValidationError as error:
        return None, explain(schema, marked, error)


def _report(path: Path | None, problems: Sequence[tuple[Place, Problem]]) -> ConfigError:
    """Format one problem as a sentence with a hint, several as one line each: those of the file first, by line."""
    ordered = sorted(problems, key=lambda item: (item[0].path is None, item[0].line or 0))
    lines = [": ".join(filter(None, (str(place), problem.path, problem.sentence))) for place, problem in ordered]
    hints = [f"did you mean {problem.suggestion!r}?" if problem.suggestion else None for _, problem in ordered]
    if len(ordered) == 1:
        return ConfigError(lines[0], hints[0])
    places = {OVERRIDDEN[place.origin] if place.path is None else f"in {path}": None for place, _ in ordered}
    listed = [f"  {line}; {hint}" if hint else f"  {line}" for line, hint in zip(lines, hints, strict=True)]
    return ConfigError("\n".join([f"{len(ordered)} problems {' and '.join(places)}:", *listed]))
