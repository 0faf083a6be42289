"""Normalization equals Python's unicodedata and is idempotent."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.text.normalize import FORMS, Form, describe_normalizing, normalize


def test_forms_are_those_of_unicode() -> None:
    # Without unassigned characters and marks, whose order changed between versions of Unicode.
    letters = [chr(code) for code in range(0x3000) if unicodedata.category(chr(code))[0] != "M"]
    text = " ".join(letter + "\u0301" for letter in letters if unicodedata.category(letter) != "Cn")
    assert len(text) > 30_000
    assert normalize(text, "nfc") == unicodedata.normalize("NFC", text)
    assert normalize(text, "nfkc") == unicodedata.normalize("NFKC", text)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("lowercase", [False, True])
@settings(deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs", "Cn"])))
def test_normalizing_is_idempotent(form: Form, lowercase: bool, text: str) -> None:
    once = normalize(text, form, lowercase)
    assert normalize(once, form, lowercase) == once


def test_a_decomposed_lowercase_letter_is_composed() -> None:
    assert normalize("\u03aa\u0301", "nfc", lowercase=True) == "\u0390"


def test_none_leaves_text_unchanged_and_lowercase_lowercases() -> None:
    assert normalize("E\u0301 ﬁ Ⅳ", "none") == "E\u0301 ﬁ Ⅳ"
    assert normalize("E\u0301 ﬁ Ⅳ", "nfkc", lowercase=True) == "é fi iv"


def test_the_report_names_the_normalization() -> None:
    assert describe_normalizing("nfc", True) == "nfc, lower-cased"
    assert describe_normalizing("none", False) == "not normalized"
