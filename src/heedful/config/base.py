"""The base class of every config: frozen, and an unknown key is an error.

Constraints between fields are checked by a `model_validator(mode="after")`, which reports all problems at once:

    @model_validator(mode="after")
    def check(self) -> Self:
        problems = unused(self, {"window": "attention is 'full'"} if self.attention == "full" else {})
        if self.dim % self.heads:
            problems.append(Problem("heads", f"given {self.heads}, expected a divisor of dim = {self.dim}"))
        refuse(problems)
        return self

Paths are relative to the config with the validator; `settings` reports each problem on its own line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, PrivateAttr
from pydantic_core import CoreSchema, core_schema, to_jsonable_python

from heedful.config.bounds import MAX_COUNT, MAX_INTEGER, MAX_NUMBER, MAX_SIZE, MAX_SMALL, MIN_EPSILON

# Every numeric option has one of these types, so that each has a finite range.
NonNegativeInteger = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
Seed = NonNegativeInteger
Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
ZeroOrCount = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Size = Annotated[int, Field(ge=1, le=MAX_SIZE)]
ZeroOrSize = Annotated[int, Field(ge=0, le=MAX_SIZE)]
SmallCount = Annotated[int, Field(ge=1, le=MAX_SMALL)]
ZeroOrSmallCount = Annotated[int, Field(ge=0, le=MAX_SMALL)]
PositiveNumber = Annotated[float, Field(gt=0.0, le=MAX_NUMBER)]
Epsilon = Annotated[float, Field(ge=MIN_EPSILON, le=MAX_NUMBER)]
NonNegativeNumber = Annotated[float, Field(ge=0.0, le=MAX_NUMBER)]
Probability = Annotated[float, Field(ge=0.0, lt=1.0)]


@dataclass(frozen=True)
class IsPath:
    """Marks the type of options that are paths: in a recipe, they are relative to its folder (paths.py)."""


PathName = Annotated[str, IsPath()]


class Config(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        validate_default=True,
        use_attribute_docstrings=True,  # the docstring below a field is its description
    )
    _unused: frozenset[str] = PrivateAttr(default=frozenset())  # dotted paths of options that have no effect


@dataclass(frozen=True)
class Untagged:
    """The default tag of a discriminated union of configs.

    Annotated[A | B, Field(discriminator="family"), Untagged("family", "a")]"""

    tag: str
    untagged: str

    def fill(self, given: Any) -> Any:
        return {self.tag: self.untagged, **given} if isinstance(given, Mapping) else given

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.fill, handler(source))


class Problem(NamedTuple):
    path: str  # dotted; empty: the table itself
    sentence: str  # given …, expected …
    suggestion: str | None = None  # the most similar valid name
    has_no_effect: bool = False  # the option is set but unused


class Problems(ValueError):
    """The problems that one validator reports."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{problem.path}: {problem.sentence}" for problem in self.problems))


def refuse(problems: Iterable[Problem]) -> None:
    """Raise all problems together, if there are any."""
    listed = tuple(problems)
    if listed:
        raise Problems(listed)


def is_set(config: Config, path: str) -> bool:
    """Whether this field (`window`, or `search.beam` of a nested config) was set, rather than left at its default."""
    owner, name = _owner(config, path)
    return name in owner.model_fields_set


def describe_default(config: Config, problem: Problem) -> Problem:
    """Reword "given X" as "the default is X" if the option was not set."""
    if problem.path not in type(config).model_fields or is_set(config, problem.path):
        return problem
    sentence = problem.sentence.removeprefix("given ")
    return problem if sentence == problem.sentence else problem._replace(sentence=f"the default is {sentence}")


def unused(config: Config, reasons: Mapping[str, str]) -> list[Problem]:
    """Return a problem for each field of {path: why it has no effect} that was set.

    `plain` omits all of these fields, so that a stored config has only options with an effect and can be read back.
    """
    config._unused |= frozenset(reasons)
    return [
        Problem(
            path, f"given {format_value(_value(config, path))}, but has no effect because {why}; remove it", has_no_effect=True
        )
        for path, why in reasons.items()
        if is_set(config, path)
    ]


def refuse_unused(config: Config, reasons: Mapping[str, str]) -> None:
    refuse(unused(config, reasons))


def format_value(value: object) -> str:
    """Format a value for messages: Python's repr, except where TOML differs."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "nothing"
    if isinstance(value, Mapping | BaseModel):
        return "a table"
    if isinstance(value, int) and abs(value) > MAX_INTEGER**2:  # Python does not format integers of thousands of digits
        return f"an integer of about {round(value.bit_length() * math.log10(2)):,} digits"
    text = f"[{', '.join(map(format_value, value))}]" if isinstance(value, list | tuple) else repr(value)
    return text if len(text) <= 80 else f"{text[:76]} …{text[-1]}"


def plain(config: Config) -> dict[str, object]:
    """Return the config as nested dicts, lists and scalars, without fields that have no effect."""
    tree = {name: _plain(getattr(config, name)) for name in type(config).model_fields}
    for path in config._unused:
        _drop(tree, path.split("."))
    return tree


def _plain(value: object) -> object:
    if isinstance(value, Config):
        return plain(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    plain_value: object = to_jsonable_python(value)
    return plain_value


def _drop(tree: object, parts: list[str]) -> None:
    for part in parts[:-1]:
        tree = tree.get(part) if isinstance(tree, dict) else None
    if isinstance(tree, dict):
        tree.pop(parts[-1], None)


def _owner(config: Config, path: str) -> tuple[Config, str]:
    *parts, name = path.split(".")
    for part in parts:
        config = getattr(config, part)
    assert name in type(config).model_fields, f"{type(config).__name__} has no field {name!r}"
    return config, name


def _value(config: Config, path: str) -> object:
    owner, name = _owner(config, path)
    value: object = getattr(owner, name)
    return value
