"""Control characters in text from data are escaped."""

from __future__ import annotations

import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from heedful.storage.terminal import printable


@given(st.text())
def test_no_control_character_is_left(text: str) -> None:
    shown = printable(text)
    assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t"]
    assert not set(shown) & set("\u202e\u2066\u2028")


@given(st.text().filter(lambda text: printable(text) == text))
def test_plain_text_is_unchanged_and_escaping_is_idempotent(text: str) -> None:
    assert printable(printable(text)) == text


@given(st.dictionaries(st.text(), st.text()))
def test_an_escaped_json_line_is_equivalent(record: dict[str, str]) -> None:
    assert json.loads(printable(json.dumps(record, ensure_ascii=False))) == record


def test_an_escape_sequence_is_escaped() -> None:
    assert printable("a\x1b]0;title\x07b\x9b2J") == "a\\u001b]0;title\\u0007b\\u009b2J"
