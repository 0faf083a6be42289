"""Sentences are slices of a text that together have all of its words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.text.sentences import split_sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It works. Really? Yes!", ["It works.", "Really?", "Yes!"]),
        ("Mr. Smith paid 3.50 for it. J. Doe did not.", ["Mr. Smith paid 3.50 for it.", "J. Doe did not."]),
        ('He said "stop." Then he left.', ['He said "stop."', "Then he left."]),
        ("A film, e.g. this one. 1999 was better…  So what?!", ["A film, e.g. this one.", "1999 was better…", "So what?!"]),
        ("first line\nsecond line<br /><br />third", ["first line", "second line<br /><br />", "third"]),
        ("he waited... and waited. ok.", ["he waited... and waited. ok."]),
        ("So do I. He knew.", ["So do I.", "He knew."]),
        ("", []),
        (" \n ", []),
    ],
)
def test_known_texts(text: str, expected: list[str]) -> None:
    assert split_sentences(text) == expected


@given(st.text(alphabet='aB1 .!?…"\n<br/>)', max_size=60))
def test_no_character_is_lost_but_white_space_around_sentences(text: str) -> None:
    sentences = split_sentences(text)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence == sentence.strip() != "" for sentence in sentences)
