"""Pre-tokenization: nothing is lost, classes of characters are separated, and the module's examples are correct."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from heedful.text.pipelines import BAR, JOINER, PIPELINES, SPACES, chunk_pattern

TEXT = st.text(st.one_of(st.sampled_from("  ab1,.\n\t"), st.characters(exclude_categories=["Cs"])))


def cut(library: Tokenizer, text: str) -> list[str]:
    normal = library.normalizer.normalize_str(text)
    return [piece for piece, _ in library.pre_tokenizer.pre_tokenize_str(normal)]


@pytest.mark.parametrize("kind", ["words", "wordpiece"])
def test_joiners_mark_where_there_was_no_space(kind: str) -> None:
    assert cut(PIPELINES[kind]([]), "(don't)") == [f"({JOINER}", "don", f"{JOINER}'{JOINER}", "t", f"{JOINER})"]


def test_bars_mark_spaces_and_letters_digits_and_punctuation_are_separated() -> None:
    pieces = cut(PIPELINES["bpe"]([]), "two men, 10 dogs")
    assert pieces == [f"{BAR}two", f"{BAR}men", ",", f"{BAR}10", f"{BAR}dogs"]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@settings(deadline=None)
@given(text=TEXT)
def test_pieces_joined_are_the_text(kind: str, text: str) -> None:
    joined = "".join(cut(PIPELINES[kind]([]), text))
    assert joined == (f"{BAR}{text}".replace(" ", BAR) if text else "")


@pytest.mark.parametrize("kind", SPACES)
@settings(deadline=None)
@given(text=TEXT)
def test_splitting_by_chunks_equals_splitting_at_once(kind: str, text: str) -> None:
    library = PIPELINES[kind]([])
    normal = library.normalizer.normalize_str(text)
    chunks = re.findall(chunk_pattern(SPACES[kind]), normal)
    assert "".join(chunks) == normal
    pieces = [piece for chunk in chunks for piece, _ in library.pre_tokenizer.pre_tokenize_str(chunk)]
    assert pieces == [piece for piece, _ in library.pre_tokenizer.pre_tokenize_str(normal)]
