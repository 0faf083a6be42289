"""Writing TOML; reading is the standard library's. tomllib.loads(write_toml(x)) == x."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

BARE = re.compile(r"[A-Za-z0-9_-]+")


def write_toml(table: Mapping[str, Any]) -> str:
    """Plain values first, then a [section] for each table; values that are None are left out."""
    return "\n".join(_section(table, ())).strip() + "\n"


def _section(table: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    kept = {key: value for key, value in table.items() if value is not None}
    lines = [f"{_key(key)} = {write_value(value)}" for key, value in kept.items() if not _is_section(value)]
    for key, value in kept.items():
        name = ".".join(_key(part) for part in (*path, key))
        if isinstance(value, Mapping):
            lines += ["", f"[{name}]", *_section(value, (*path, key))]
        elif _is_section(value):
            for one in value:
                lines += ["", f"[[{name}]]", *_section(one, (*path, key))]
    return lines


def _is_section(value: Any) -> bool:
    return isinstance(value, Mapping) or (
        isinstance(value, list | tuple) and bool(value) and all(isinstance(one, Mapping) for one in value)
    )


def write_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value).replace("nan", "nan")
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {write_value(one)}" for key, one in value.items() if one is not None) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(write_value(one) for one in value) + "]"
    raise TypeError(f"TOML has no way to write {value!r}")


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(key: str) -> str:
    return key if BARE.fullmatch(key) else _text(key)
