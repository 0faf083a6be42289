from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data.split_text import Fits, join_translations, split_to_fit

ALPHABET = st.sampled_from(
    [*"abcXY. .!?…;:,\n\t\"')3 -–", "。", "！", "，", "好", "é", "e\u0301", "\u3000", "Mr. ", "; ", ", "]
)
TEXTS = st.lists(ALPHABET, max_size=80).map("".join)


def at_most(length: int) -> Fits:
    return lambda text: len(text) <= length


@settings(max_examples=400)
@given(text=TEXTS, length=st.integers(1, 30))
def test_parts_fit_and_joined_they_are_the_text(text: str, length: int) -> None:
    parts = split_to_fit(text, at_most(length))
    assert "".join(parts) == text
    for part in parts:
        base = [character for character in part if not unicodedata.category(character).startswith("M")]
        assert len(part) <= length or len(base) <= 1
    assert parts == [text] or all(parts)


@given(text=TEXTS, length=st.integers(1, 30))
def test_joining_untranslated_parts_restores_the_text(text: str, length: int) -> None:
    parts = split_to_fit(text, at_most(length))
    assert join_translations(parts, [part.strip() for part in parts]) == text


@given(text=TEXTS, limit=st.integers(1, 12))
def test_parts_fit_with_a_limit_in_words_too(text: str, limit: int) -> None:
    parts = split_to_fit(text, lambda part: len(part.split()) <= limit)
    assert "".join(parts) == text
    assert all(len(part.split()) <= limit for part in parts)


SPLIT: dict[str, tuple[str, int, list[str]]] = {
    "what fits is left alone": ("One. Two.", 9, ["One. Two."]),
    "sentences": ("One is here. Two? Three!", 13, ["One is here. ", "Two? ", "Three!"]),
    "quotes close with their sentence": ('"Go away." He left.', 12, ['"Go away." ', "He left."]),
    "no sentence ends before a small letter": ('"Go!" he said. Then left.', 15, ['"Go!" he said. ', "Then left."]),
    "nor after an abbreviation": ("Mr. Smith met Dr. J. Who. Fine.", 26, ["Mr. Smith met Dr. J. Who. ", "Fine."]),
    "numbers are whole": ("It costs 3.14 now, really. Yes.", 27, ["It costs 3.14 now, really. ", "Yes."]),
    "lines": ("one line\nanother line", 12, ["one line\n", "another line"]),
    "Chinese": ("你好吗？我很好。谢谢！", 5, ["你好吗？", "我很好。", "谢谢！"]),
    "no capitals": ("one is. two is. three is.", 16, ["one is. two is. ", "three is."]),
    "clauses": ("first part; second part; third", 24, ["first part; ", "second part; third"]),
    "commas": ("aa, bb, cc, dd, ee", 9, ["aa, bb, ", "cc, dd, ", "ee"]),
    "words": ("aa bb cc dd", 6, ["aa bb ", "cc dd"]),
    "characters": ("abcdefgh", 3, ["abc", "def", "gh"]),
    "accents stay with their letter": ("e\u0301e\u0301e\u0301", 3, ["e\u0301", "e\u0301", "e\u0301"]),
    "the coarsest cut that helps": ("Short. aa bb cc dd ee ff", 8, ["Short. ", "aa bb ", "cc dd ", "ee ff"]),
}


@pytest.mark.parametrize("case", SPLIT)
def test_texts_are_split_at_sensible_positions(case: str) -> None:
    text, length, expected = SPLIT[case]
    assert split_to_fit(text, at_most(length)) == expected


@pytest.mark.parametrize(
    ("parts", "translations", "expected"),
    [
        (["One.  ", "Two."], ["Eins.", "Zwei."], "Eins.  Zwei."),
        ([" One.\n", "Two. "], ["Eins. ", " Zwei."], " Eins.\nZwei. "),
        (["你好。", "谢谢。"], ["Hello.", "Thanks."], "Hello. Thanks."),
        (["你好。", "谢谢。"], ["こんにちは。", "どうも。"], "こんにちは。どうも。"),
        (["abc", "def"], ["uvw", "xyz"], "uvwxyz"),
        (["One. ", "  "], ["Eins.", "noise"], "Eins.   "),
    ],
)
def test_translations_are_joined_with_the_white_space_of_the_source(
    parts: list[str], translations: list[str], expected: str
) -> None:
    assert join_translations(parts, translations) == expected


def test_a_long_text_needs_few_calls_of_fits() -> None:
    asked = 0

    def fits(text: str) -> bool:
        nonlocal asked
        asked += 1
        return len(text) <= 1000

    parts = split_to_fit("word " * 20_000, fits)
    assert len(parts) == 100
    assert asked < 30 * len(parts)
