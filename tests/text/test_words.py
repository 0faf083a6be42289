"""The word of a piece, compared with str.split on text split anywhere, also inside a character."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.text.words import mask_punctuation, word_indices

TEXT = st.text(st.one_of(st.sampled_from(" \u00a0\u3000aé中"), st.characters(exclude_categories=["Cs"])))


@settings(deadline=None)
@given(text=TEXT, places=st.lists(st.integers(0, 60)))
def test_pieces_of_one_word_together_are_that_word(text: str, places: list[int]) -> None:
    encoded = text.encode()
    cuts = [0, *sorted({place for place in places if place < len(encoded)} | {len(encoded)})]
    spellings = [encoded[start:end] for start, end in pairwise(cuts)]
    # cut again so that no piece holds the end of one word and the beginning of another
    spellings = [part for piece in spellings for part in split_before_words(piece)]
    indices = word_indices(spellings)
    grouped = [b"" for _ in text.split()]
    for spelling, index in zip(spellings, indices, strict=True):
        if grouped:
            grouped[index] += spelling
    assert [group.decode().strip() for group in grouped] == text.split()
    assert indices == sorted(indices)


def split_before_words(piece: bytes) -> list[bytes]:
    """Split before every space that follows another character."""
    parts, start = [], 0
    text = piece.decode("utf-8", "surrogateescape")
    for place in range(1, len(text)):
        if text[place].isspace() and not text[place - 1].isspace():
            parts.append(text[start:place].encode("utf-8", "surrogateescape"))
            start = place
    return [*parts, text[start:].encode("utf-8", "surrogateescape")]


def test_spaces_belong_to_the_word_after_them_and_at_the_end_to_the_last() -> None:
    assert word_indices([b" ", b"a", b" ", b" ", b"b", b" "]) == [0, 0, 1, 1, 1, 1]


def test_a_piece_of_several_words_belongs_to_the_first() -> None:
    assert word_indices([b" in the", b" end"]) == [0, 2]


def test_no_words_at_all() -> None:
    assert word_indices([]) == []
    assert word_indices([b" ", b""]) == [0, 0]


@settings(deadline=None)
@given(words=st.lists(st.text(st.sampled_from("ab1é中'?-€"), min_size=1)))
def test_masking_punctuation_keeps_letters_and_words_of_punctuation_only(words: list[str]) -> None:
    text = " ".join(words)
    spellings = [character.encode() for character in text]
    kept = mask_punctuation(spellings, word_indices(spellings))
    left = ["".join(c for c, index in zip(text, kept, strict=True) if index == n).strip() for n in range(len(words))]
    assert left == ["".join(filter(str.isalnum, word)) or word for word in words]


def test_pieces_with_letters_or_partial_characters_are_not_punctuation() -> None:
    assert mask_punctuation([b" dogs?"], [0]) == [0]
    assert mask_punctuation([b" \xd0", b"\x96", b"?"], [0, 0, 0]) == [0, 0, -1]
    assert mask_punctuation([b"", b" dogs", b"", b"?", b""], [-1, 0, 0, 0, -1]) == [-1, 0, 0, -1, -1]
