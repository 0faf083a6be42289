"""Reading and writing TOML, and finding the line of a key.

    parse_toml(write_toml(tree)) == tree        for trees of TOML types; keys whose value is None are omitted

Reading uses `tomllib` of the standard library, with a limit on nesting: without it, a file of some thousand brackets or dots
exhausts the stack or takes hours. A table's own keys come first, then its tables as [a.b] and its lists of tables as
[[a.b]], in the order of the mapping.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time

WIDTH = 100  # a longer list is written one item per line
MAX_DEPTH = 32  # nested tables and lists, and parts of a dotted key

ESCAPES = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}

PART = r"""(?:"(?:\\.|[^"\\\n])*"|'[^'\n]*'|[A-Za-z0-9_-]+)"""
KEY = re.compile(rf"{PART}(?:[ \t]*\.[ \t]*{PART})*")
STATEMENT = re.compile(rf"(?:\s|#[^\n]*)*(?P<header>\[\[?)?[ \t]*(?P<key>{KEY.pattern})")
# Strings and comments may contain line ends and brackets; a multi-line string may end in five quotes.
TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?""""{0,2}' + r"|'''.*?''''{0,2}" + r'|"(?:\\.|[^"\\\n])*"' + r"|'[^'\n]*'|\#[^\n]*|[\[\]{}\n]",
    re.DOTALL,
)

DEEP_KEY = re.compile(rf"(?<![A-Za-z0-9_-])(?:[A-Za-z0-9_-]++[ \t]*+\.[ \t]*+){{{MAX_DEPTH}}}")
MANY_DIGITS = re.compile(r"[0-9](?:_?[0-9]){4000}")
POSITION = re.compile(r"(?P<reason>.*) \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)", re.DOTALL)


class TomlError(ValueError):
    """Why and where a text is not TOML; lines and columns count from 1."""

    def __init__(self, reason: str, line: int, column: int) -> None:
        super().__init__(reason)
        self.reason, self.line, self.column = reason, line, column


class TooDeep(TomlError):
    """Tables, lists or keys are nested deeper than `MAX_DEPTH`."""


def parse_toml(text: str) -> dict[str, object]:
    """Parse a TOML text; any error is a TomlError."""
    if (position := _too_deep(text)) is not None:
        raise _error(TooDeep, f"nested deeper than {MAX_DEPTH} levels", text, position)
    try:
        tree: dict[str, object] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = POSITION.fullmatch(str(error))
        assert match, f"tomllib has changed its messages: {error}"
        reason, lines = match["reason"][0].lower() + match["reason"][1:], text.splitlines() or [""]
        line, column = int(match["line"] or len(lines)), int(match["column"] or len(lines[-1]) + 1)
        raise TomlError(reason, line, column) from None
    except ValueError:  # Python does not parse integers of thousands of digits
        number = MANY_DIGITS.search(text)
        raise _error(TomlError, "a number has thousands of digits", text, number.start() if number else 0) from None
    if _depth(tree) > MAX_DEPTH:
        raise _error(TooDeep, f"nested deeper than {MAX_DEPTH} levels", text, 0)
    return tree


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
    raise TypeError(f"{value!r} has type {type(value).__name__}, which TOML does not have")


def write_string(text: str) -> str:
    return '"' + "".join(ESCAPES.get(char) or (char if char.isprintable() else _escape(char)) for char in text) + '"'


def write_key(parts: Sequence[str]) -> str:
    """Write a dotted path; parts that are not bare keys are quoted."""
    return ".".join(part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else write_string(part) for part in parts)


def split_key(text: str) -> tuple[str, ...] | None:
    """Split a dotted path into its parts; None if it is not one."""
    if not KEY.fullmatch(text):
        return None
    parts = re.findall(PART, text)
    try:
        return tuple(tomllib.loads(f"x = {part}")["x"] if part[0] in "\"'" else part for part in parts)
    except tomllib.TOMLDecodeError:  # a quoted part with an escape that TOML does not have
        return None


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """The line of every key and table of a valid TOML text; items of [[lists]] are numbered from "0".

    Keys inside { inline } tables are omitted: they are on the line of the key of that table.
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


def _too_deep(text: str) -> int | None:
    """The position where brackets or a dotted key exceed `MAX_DEPTH`, outside strings and comments; found before parsing."""
    depth = 0
    for token in TOKEN.finditer(text):
        depth += (token[0] in ("[", "{")) - (token[0] in ("]", "}"))
        if depth > MAX_DEPTH:
            return token.start()
    keys = TOKEN.sub(lambda token: token[0] if len(token[0]) == 1 else "x" * len(token[0]), text)
    deep = DEEP_KEY.search(keys)
    return deep.start() if deep else None


def _depth(tree: object) -> int:
    """The nesting depth of tables and lists."""
    depth, level = 0, [tree]
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        level = [inner for item in level for inner in (item.values() if isinstance(item, dict) else item)]
    return depth


def _error(kind: type[TomlError], reason: str, text: str, position: int) -> TomlError:
    before = text[:position]
    return kind(reason, before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1)


def _table(tree: Mapping[str, object], path: tuple[str, ...]) -> Iterator[str]:
    tables = {key: value for key, value in tree.items() if isinstance(value, Mapping) or _is_table_list(value)}
    for key, value in tree.items():
        if key not in tables and value is not None:
            yield f"{write_key([key])} = {spread(value)}"
    for key, value in tables.items():
        inner = (*path, key)
        if isinstance(value, Mapping):
            if not value or not all(isinstance(item, Mapping) or _is_table_list(item) for item in value.values()):
                yield from ("", f"[{write_key(inner)}]")  # a table of tables needs no header
            yield from _table(value, inner)
        elif isinstance(value, list | tuple):
            for item in value:
                yield from ("", f"[[{write_key(inner)}]]")
                yield from _table(item, inner)


def _is_table_list(value: object) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(item, Mapping) for item in value)


def spread(value: object, width: int = WIDTH) -> str:
    """Write one value; a list longer than `width` is written one item per line."""
    line = write_value(value)
    if len(line) <= width or not isinstance(value, list | tuple):
        return line
    return "[\n" + "".join(f"    {write_value(item)},\n" for item in value) + "]"


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def _resolve(parts: tuple[str, ...], counts: dict[tuple[str, ...], int], starts_item: bool) -> tuple[str, ...]:
    """The path of a header: below a [[list]] it belongs to the last item."""
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
