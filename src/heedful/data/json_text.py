"""Strict JSON for untrusted files: every problem is a DataError with the file and line.

Ambiguous JSON is an error too: duplicate keys, NaN and Infinity.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

from heedful.errors import DataError

MAX_DIGITS = 400  # a float has at most 309 before the point


def parse_json(text: str, place: str, *, expected: str = "", hint: str | None = None) -> Any:
    """Return the value of a JSON text; `place` names the file, and the line if there are several. expected: a clause on what
    the text should be."""
    try:
        return json.loads(text, object_pairs_hook=unique_keys, parse_constant=refuse_constant, parse_int=parse_int)
    except json.JSONDecodeError as error:
        reason = error.msg
    except RecursionError:
        reason = "too deeply nested"
    except ValueError as error:
        reason = str(error)
    raise DataError(f"{place} is not JSON: {reason}{'; ' if expected else ''}{expected}", hint=hint)


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r:.60} occurs twice")
    return result


def refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def parse_int(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number has {len(digits):,} digits")
    return int(digits)
