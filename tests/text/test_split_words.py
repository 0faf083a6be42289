from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.text.split_words import split_words


@settings(max_examples=40)
@given(st.text(), st.booleans())
def test_offsets_give_back_the_words_and_nothing_else_is_in_between(text: str, punctuation: bool) -> None:
    words = split_words(text, punctuation=punctuation)
    assert all(text[word.start : word.end] == word.text != "" for word in words)
    assert "".join(word.text for word in words) == "".join(text.split())
    assert [word.start for word in words] == sorted(word.start for word in words)
    if not punctuation:
        assert [word.text for word in words] == text.split()


def test_outer_punctuation_is_separated_and_inner_stays() -> None:
    words = [word.text for word in split_words('"Well, don\'t pay $3.14..." (she said)', punctuation=True)]
    assert words == ['"', "Well", ",", "don't", "pay", "$", "3.14", "...", '"', "(", "she", "said", ")"]
