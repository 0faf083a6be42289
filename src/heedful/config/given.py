"""The given values: a TOML file, changed by `key=value` overrides, and the place of each value.

    training.steps=200   model.heads=[4,4,8]   data.train.source=a.txt   data.train.0.weight=2

A value is parsed as TOML if possible, else it is a string. Nothing is validated here. Overrides come from the command line
or from a Python call; messages name their origin.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from heedful.config.base import Problem, format_value
from heedful.config.toml import MAX_DEPTH, TomlError, TooDeep, key_lines, parse_toml, split_key, write_key
from heedful.errors import ConfigError, nearest
from heedful.storage.reading import read_bytes, reason_of

Parts = tuple[str, ...]  # a dotted path, split

EXAMPLE = "training.steps=200"
COMMAND_LINE, OVERRIDE, ARGUMENT = "command line", "override", "argument"  # origins of overrides


@dataclass(frozen=True)
class Place:
    path: Path | None  # None: an override
    line: int | None = None
    origin: str = OVERRIDE
    conflict: str = ""  # of an override: the option, and what it conflicts with

    def __str__(self) -> str:
        if self.path is None:
            return f"{self.origin}: {self.conflict}" if self.conflict else self.origin
        return f"{self.path}:{self.line}" if self.line else str(self.path)


@dataclass(frozen=True)
class Given:
    path: Path | None
    tree: dict[str, object]
    lines: dict[Parts, int] = field(default_factory=dict)  # line of each key in the file
    overrides: dict[Parts, str] = field(default_factory=dict)  # values as typed
    origin: str = OVERRIDE  # of the overrides

    def place(self, parts: Parts) -> Place:
        """Where this path, or the nearest table around it, was set."""
        heads = [parts[:length] for length in range(len(parts), 0, -1)]
        if any(head in self.overrides for head in heads):
            return Place(None, origin=self.origin)
        for head in heads:
            if head in self.lines:
                return Place(self.path, self.lines[head])
            if any(other[: len(head)] == head for other in self.overrides):
                return Place(None, origin=self.origin)
        return Place(self.path, origin=self.origin)

    def find(self, parts: Parts) -> Parts | None:
        """The given path of an option of the config: shorter if the schema expanded a value; None if it was not set."""
        tree: object = self.tree
        path: Parts = ()
        for part in parts:
            if isinstance(tree, dict) and part in tree:
                tree = tree[part]
            elif isinstance(tree, list) and part.isdigit() and int(part) < len(tree):
                tree = tree[int(part)]
            elif isinstance(tree, dict) and part.isdigit():
                continue  # the schema accepts one table as a list of one
            else:
                return None if isinstance(tree, dict) else path
            path = (*path, part)
        return path


def refuse_repeats(overrides: Sequence[str], origin: str) -> None:
    """Raise ConfigError for a key with two values: one would be ignored."""
    values: dict[str, str] = {}
    for text in overrides:
        key, _, value = (piece.strip() for piece in text.partition("="))
        if values.setdefault(key, value) != value:
            raise ConfigError(f"{origin}: {key} is set twice, to {values[key]:.40} and {value:.40}; expected one value")


def apply_overrides(given: Given, overrides: Sequence[str]) -> list[Problem]:
    """Change the given values, and return the problems of malformed overrides."""
    return [problem for text in overrides if (problem := _override(given, text))]


def read_file(path: Path) -> Given:
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except FileNotFoundError:
        close = nearest(path.name, [file.name for file in path.parent.glob("*.toml")])
        hint = f"did you mean {str(path.with_name(close))!r}?" if close else None
        raise ConfigError(f"{path}: no such file; expected settings in TOML", hint) from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({reason_of(error)}); expected settings in TOML") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        byte = error.object[error.start]
        raise ConfigError(f"{path}:{line}: byte 0x{byte:02x} is not UTF-8; expected settings in TOML") from None
    try:
        return Given(path, parse_toml(text), key_lines(text))
    except TomlError as error:
        raise _bad_syntax(path, text, error) from None


def parse_value(text: str) -> object:
    """Parse a TOML value, else return the text; a shell turns ["en","de"] into [en,de]."""
    try:
        parsed = parse_toml(f"value = {text}")
        if list(parsed) == ["value"]:
            return parsed["value"]
    except TooDeep:
        raise
    except TomlError:
        pass
    words = re.fullmatch(r"\[([^\[\]{}\"']+)\]", text)
    return [parse_value(word.strip()) for word in words[1].split(",")] if words else text


def set_key(tree: object, parts: Parts, value: object) -> None:
    """Set the value at a path, creating missing tables."""
    for index, part in enumerate(parts):
        is_last = index == len(parts) - 1
        if isinstance(tree, list):
            tree[int(part)] = value if is_last else tree[int(part)]
            tree = tree[int(part)]
        elif isinstance(tree, dict):
            tree[part] = value if is_last else tree.get(part, {})
            tree = tree[part]


def remove_key(tree: object, parts: Parts) -> None:
    """Remove the value at a path of tables."""
    *tables, last = parts
    for part in tables:
        assert isinstance(tree, dict), f"{write_key(parts)} leads through tables"
        tree = tree[part]
    assert isinstance(tree, dict), f"{write_key(parts)} ends in a table"
    del tree[last]


def _override(given: Given, text: str) -> Problem | None:
    """Apply one `key=value` to the tree, or return the problem."""
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        return Problem("", f"given {text!r:.80}, expected text in UTF-8")
    key, equals, value = (piece.strip() for piece in text.partition("="))
    parts = split_key(key)
    if not equals or parts is None or key.startswith("-"):
        bare = key.lstrip("-")
        suggestion = f"{bare}={value or 'VALUE'}" if split_key(bare) else None
        return Problem("", f"given {format_value(text)}, expected key=value, as in {EXAMPLE}", suggestion)
    if len(parts) > MAX_DEPTH:
        return Problem("", f"given a key of {len(parts):,} parts, expected at most {MAX_DEPTH}")
    if not value:
        return Problem(key, "given nothing after '=', expected a value; to unset an option, remove it from the recipe")
    if obstacle := _obstacle(given.tree, parts):
        blocked, content = obstacle
        return Problem(key, f"given {format_value(value)}, but {write_key(blocked)} is {content} ({given.place(blocked)})")
    try:
        set_key(given.tree, parts, parse_value(value))
    except TooDeep as error:
        return Problem(key, f"given {format_value(value)}, which is {error.reason}")
    given.overrides[parts] = value
    return None


def _obstacle(tree: object, parts: Parts) -> tuple[Parts, str] | None:
    """The first part of a path that is no table or list with such a key, and what it is instead."""
    for depth, part in enumerate(parts):
        if isinstance(tree, dict):
            if part not in tree:
                return None
            tree = tree[part]
        elif isinstance(tree, list):
            if not part.isdigit() or int(part) >= len(tree):
                return parts[:depth], f"a list of {len(tree)}, with items numbered from 0"
            tree = tree[int(part)]
        else:
            return parts[:depth], f"{format_value(tree)}, not a table"
    return None


def _bad_syntax(path: Path, text: str, error: TomlError) -> ConfigError:
    line = (text.splitlines() or [""])[error.line - 1]
    before, after = line[: error.column - 1].strip(), line[error.column - 1 :].partition("#")[0].strip()
    hint = None
    if error.reason == "invalid value" and re.fullmatch(r"[A-Za-z./~][^\"']*", after):
        is_flag = after.lower() in ("true", "false")
        hint = f"write {before} {after.lower()}" if is_flag else f'put strings in quotes: {before} "{after}"'
    return ConfigError(f"{path}:{error.line}:{error.column}: not valid TOML: {_reason(error, line)}", hint)


def _reason(error: TomlError, line: str) -> str:
    """Why the line is not TOML; tomllib does not name a key that is given twice."""
    if error.reason == "cannot overwrite a value":
        return f"the key {line.partition('=')[0].strip()!r} is given twice"
    if re.fullmatch(r"cannot declare \(.*\) twice", error.reason):
        return f"the table {line.partition('#')[0].strip()} is given twice"
    return error.reason
