from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.text import TokenizerConfig, long_lines, train_tokenizer
from heedful.text.long_lines import encode_lines, split_line
from heedful.text.tokenizer import Tokenizer

WORDS = ["a", "dog", "runs", "fast", "don't", "12", "￭", "naïve"]
LINES = [" ".join(WORDS[(i * 7 + j) % 8] for j in range(60)) for i in range(5)]
KINDS = ["characters", "words", "wordpiece", "spaces", "bpe", "unigram", "bytes"]


def tokenizer_of(kind: str) -> Tokenizer:
    sized = {} if kind == "characters" else {"vocab": 300 if kind == "bytes" else 70}
    return train_tokenizer(TokenizerConfig.model_validate({"kind": kind, **sized}), LINES * 3)


@pytest.mark.parametrize("kind", KINDS)
def test_a_line_split_between_words_has_the_same_tokens(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = tokenizer_of(kind)
    lines = [*LINES, "", "a  dog", LINES[0]]
    whole = [id for row in tokenizer.encode_many(lines) for id in (*row, -1)]
    monkeypatch.setattr(long_lines, "MAX_CHARACTERS", 30)
    assert list(chain.from_iterable(encode_lines(tokenizer, lines, -1))) == whole


@settings(max_examples=60)
@given(st.text("ab ", max_size=40))
def test_parts_are_short_and_join_to_the_line(line: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_lines, "MAX_CHARACTERS", 7)
        pieces = list(split_line(line, keep_spaces=True))
        assert "".join(pieces) == line
        assert all(len(piece) <= 7 for piece in pieces)
        assert all(piece.endswith(" ") for piece in pieces[:-1] if " " in piece[1:] and "  " not in line)
