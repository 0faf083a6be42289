"""Writing TOML, and finding the line on which a key stands; reading values is the standard library's `tomllib`.

    tomllib.loads(write_toml(tree)) == tree        for trees of TOML types; a key whose value is None is left out

A table's own keys come first, then its tables as [a.b] and its lists of tables as [[a.b]], in the order of the mapping.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time

WIDTH = 100  # a longer list is written one item a line

ESCAPES = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}

PART = r"""(?:"(?:\\.|[^"\\\n])*"|'[^'\n]*'|[A-Za-z0-9_-]+)"""
KEY = re.compile(rf"{PART}(?:[ \t]*\.[ \t]*{PART})*")
STATEMENT = re.compile(rf"(?:\s|#[^\n]*)*(?P<header>\[\[?)?[ \t]*(?P<key>{KEY.pattern})")
# What may hide a line's end or a bracket inside a value: strings (a multi-line one may end in five quotes) and comments.
TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?""""{0,2}' + r"|'''.*?''''{0,2}" + r'|"(?:\\.|[^"\\\n])*"' + r"|'[^'\n]*'|\#[^\n]*|[\[\]{}\n]",
    re.DOTALL,
)


def write_toml(tree: Mapping[str, object]) -> str:
    return "\n".join(_table(tree, ())).lstrip("\n") + "\n" if tree else ""


def write_value(value: object) -> str:
    """One value on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return write_string(value)
    if isinstance(value, float):
        return repr(float(value))  # the shortest digits that read back as the same number
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        pairs = (f"{write_key([key])} = {write_value(item)}" for key, item in value.items() if item is not None)
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(write_value(item) for item in value) + "]"
    raise TypeError(f"TOML has no place for {value!r} of type {type(value).__name__}")


def write_string(text: str) -> str:
    return '"' + "".join(ESCAPES.get(char) or (char if char.isprintable() else _escape(char)) for char in text) + '"'


def write_key(parts: Sequence[str]) -> str:
    """A dotted path; a part that is not a plain word is quoted."""
    return ".".join(part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else write_string(part) for part in parts)


def split_key(text: str) -> tuple[str, ...] | None:
    """The parts of a dotted path, or None where it is not one."""
    if not KEY.fullmatch(text):
        return None
    return tuple(tomllib.loads(f"x = {part}")["x"] if part[0] in "\"'" else part for part in re.findall(PART, text))


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """The line of every key and table of a well-formed TOML text; items of [[lists]] are numbered from "0".

    Keys inside { inline } tables are left out: they stand on the line of the key that holds them.
    """
    lines: dict[tuple[str, ...], int] = {}
    counts: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    position = 0
    while statement := STATEMENT.match(text, position):
        parts = split_key(statement["key"])
        assert parts is not None, f"STATEMENT matched {statement['key']!r}, which is not a key"
        if statement["header"]:
            path = _resolve(parts, counts, statement["header"] == "[[")
            table = path
            position = text.index("]", statement.end()) + len(statement["header"])
        else:
            path = (*table, *parts)
            position = _end_of_value(text, statement.end())
        line = text.count("\n", 0, statement.start("key")) + 1
        for length in range(1, len(path) + 1):
            lines.setdefault(path[:length], line)
    return lines


def _table(tree: Mapping[str, object], path: tuple[str, ...]) -> Iterator[str]:
    tables = {key: value for key, value in tree.items() if isinstance(value, Mapping) or _is_table_list(value)}
    for key, value in tree.items():
        if key not in tables and value is not None:
            yield f"{write_key([key])} = {_spread(value)}"
    for key, value in tables.items():
        inner = (*path, key)
        if isinstance(value, Mapping):
            if not value or not all(isinstance(item, Mapping) or _is_table_list(item) for item in value.values()):
                yield from ("", f"[{write_key(inner)}]")  # a table that only holds tables needs no heading
            yield from _table(value, inner)
        elif isinstance(value, list | tuple):
            for item in value:
                yield from ("", f"[[{write_key(inner)}]]")
                yield from _table(item, inner)


def _is_table_list(value: object) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _spread(value: object) -> str:
    line = write_value(value)
    if len(line) <= WIDTH or not isinstance(value, list | tuple):
        return line
    return "[\n" + "".join(f"    {write_value(item)},\n" for item in value) + "]"


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def _resolve(parts: tuple[str, ...], counts: dict[tuple[str, ...], int], starts_item: bool) -> tuple[str, ...]:
    """The path of a heading: below a [[list]] it speaks of the item that was begun last."""
    path: tuple[str, ...] = ()
    for index, part in enumerate(parts):
        path = (*path, part)
        if starts_item and index == len(parts) - 1:
            counts[path] = counts.get(path, 0) + 1
        if path in counts:
            path = (*path, str(counts[path] - 1))
    return path


def _end_of_value(text: str, position: int) -> int:
    depth = 0
    for token in TOKEN.finditer(text, position):
        if token[0] == "\n" and depth == 0:
            return token.end()
        depth += (token[0] in ("[", "{")) - (token[0] in ("]", "}"))
    return len(text)
