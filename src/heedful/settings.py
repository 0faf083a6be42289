"""A TOML file and dotted overrides become a checked config that knows where each value came from.

    settings = read_settings(Run, Path("recipe.toml"), ["training.steps=200"])
    settings.config.training.steps       # 200
    settings.origins["training.steps"]   # "command line"

One error lists all problems, each with where it stands, what was given, what is allowed, and the nearest right name.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from heedful.complaints import complaints
from heedful.errors import ConfigError
from heedful.schema import Config
from heedful.toml import write_value

Checked = TypeVar("Checked", bound=Config)
COMMAND_LINE = "command line"


class Missing:
    def __repr__(self) -> str:
        return "(not set)"


MISSING = Missing()


@dataclass(frozen=True)
class Settings(Generic[Checked]):
    config: Checked
    origins: dict[str, str]  # dotted path -> "default", "recipe.toml:12", "command line"


def read_settings(schema: type[Checked], path: Path | None, overrides: Sequence[str] = ()) -> Settings[Checked]:
    table, origins = read_file(path) if path is not None else ({}, {})
    for override in overrides:
        key, value = split_override(override)
        put(table, key, parse_value(value))
        origins = {name: origin for name, origin in origins.items() if not name.startswith(f"{key}.")}
        origins[key] = COMMAND_LINE
    try:
        config = schema.model_validate(table)
    except ValidationError as error:
        raise report(complaints(schema, table, error), path, origins) from error
    found = {name: origin_of(name, origins) for name, _ in flatten(config.model_dump())}
    return Settings(config, found)


def report(found: list[tuple[str, str, str | None]], path: Path | None, origins: Mapping[str, str]) -> ConfigError:
    """All problems as one error: (dotted path, sentence, near miss) each."""

    def where(name: str) -> str:
        origin = origin_of(name, origins)
        return origin if origin != "default" else str(path or COMMAND_LINE)

    if len(found) == 1:
        name, sentence, close = found[0]
        prefix = f"{name}: " if name else ""
        return ConfigError(f"{where(name)}: {prefix}{sentence}", hint=f"did you mean {close!r}?" if close else None)
    lines = [
        f"\n  {where(name)}: {name}{': ' if name else ''}{sentence}{f'; did you mean {close!r}?' if close else ''}"
        for name, sentence, close in found
    ]
    return ConfigError(f"{len(found)} problems in {path or COMMAND_LINE}:{''.join(lines)}")


def read_file(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The table of a file, and for each dotted path the line that sets it."""
    try:
        text = path.read_text(encoding="utf-8")
        table = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8: byte {error.start + 1}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    lines = dict(line_numbers(text))
    origins = {}
    for name, _ in flatten(table):
        near = next((lines[part] for part in (name, *parents(name)) if part in lines), None)
        origins[name] = f"{path.name}:{near}" if near is not None else path.name
    return table, origins


def line_numbers(text: str) -> Iterator[tuple[str, int]]:
    """(dotted path, line) of every plain `key = value` and `[table]`."""
    section = ""
    for number, line in enumerate(text.split("\n"), start=1):
        if head := re.match(r"\s*\[+\s*([\w.-]+)\s*\]+", line):
            section = f"{head[1]}."
            yield head[1], number
        elif key := re.match(r"\s*([\w.-]+)\s*=", line):
            yield section + key[1], number


def split_override(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip() or not value.strip():
        raise ConfigError(f"override {text!r} was given; expected key=value", hint="for example training.steps=200")
    return key.strip(), value.strip()


def parse_value(text: str) -> Any:
    """As TOML where it is TOML, else a text."""
    try:
        return tomllib.loads(f"value = {text}")["value"] if "\n" not in text else text
    except tomllib.TOMLDecodeError:
        return text


def put(table: dict[str, Any], key: str, value: Any) -> None:
    """table["a"]["b"] = value for "a.b"; tables on the way are made."""
    *way, last = key.split(".")
    for depth, part in enumerate(way):
        inner = table.setdefault(part, {})
        if not isinstance(inner, dict):
            inside = ".".join(way[: depth + 1])
            raise ConfigError(f"override {key!r} goes inside {inside!r}, which is not a table but {inner!r}")
        table = inner
    table[last] = value


def flatten(table: Mapping[str, Any], front: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted path, value) of every leaf; a list is a leaf."""
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{front}{key}.")
        else:
            yield f"{front}{key}", value


def parents(name: str) -> list[str]:
    """ "a.b.c" -> ["a.b", "a"]."""
    parts = name.split(".")
    return [".".join(parts[:length]) for length in range(len(parts) - 1, 0, -1)]


def origin_of(name: str, origins: Mapping[str, str]) -> str:
    return next((origins[part] for part in (name, *parents(name)) if part in origins), "default")


def show(settings: Settings[Any]) -> list[str]:
    """model.dim = 256    # recipe.toml:12"""
    values = [(name, value) for name, value in flatten(settings.config.model_dump(mode="json")) if value is not None]
    texts = [f"{name} = {write_value(value)}" for name, value in values]
    width = min(max(map(len, texts)), 60)
    return [f"{text.ljust(width)}  # {settings.origins[name]}" for text, (name, _) in zip(texts, values, strict=True)]


def difference(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """(dotted path, value here, value there) wherever the two differ."""
    one, other = dict(flatten(first)), dict(flatten(second))
    names = [*one, *(name for name in other if name not in one)]
    return [
        (name, one.get(name, MISSING), other.get(name, MISSING))
        for name in names
        if one.get(name, MISSING) != other.get(name, MISSING)
    ]


def schema_json(schema: type[BaseModel]) -> str:
    return json.dumps(schema.model_json_schema(), indent=1, sort_keys=True, ensure_ascii=False)
