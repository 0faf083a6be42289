"""Untrusted JSON: a value, or one clear error."""

from __future__ import annotations

import pytest

from heedful.data.json_text import parse_json
from heedful.errors import DataError


def test_json_is_parsed() -> None:
    assert parse_json('{"a": [1, 2.5, null]}', "x") == {"a": [1, 2.5, None]}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "Expecting property name"),
        ("[" * 100_000, "too deeply nested"),
        ('{"a": ' + "1" * 5000 + "}", "a number has 5,000 digits"),
        ('{"a": 1, "b": 2, "a": 3}', "the key 'a' occurs twice"),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ("[-Infinity]", "-Infinity is not a JSON number"),
        ("", "Expecting value"),
    ],
)
def test_malformed_json_is_a_data_error_with_its_place(text: str, reason: str) -> None:
    with pytest.raises(DataError, match=f"^f.jsonl line 3 is not JSON: {reason}") as caught:
        parse_json(text, "f.jsonl line 3", hint="do this")
    assert caught.value.hint == "do this"
