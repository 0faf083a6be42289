from __future__ import annotations

import logging
import time

import pytest

from heedful.text import TokenizerConfig, train_tokenizer
from heedful.text.long_words import MAX_WORD, remove_long_words

LINES = ["a dog runs, 12 dogs run", "zwei Hunde, " * 400, "क्या " * 300, "x" * MAX_WORD, "日本語の文。" * 400, ""]


def test_text_without_long_words_is_unchanged() -> None:
    assert list(remove_long_words(LINES)) == LINES


def test_long_words_are_removed_and_counted_but_their_characters_stay(caplog: pytest.LogCaptureFixture) -> None:
    long = [f"before {'xyz' * 500} after", "7" * 2000 + " and " + "-" * 1500, "a" + " " * 5000 + "b", "é" * 200_000]
    with caplog.at_level(logging.WARNING):
        lines = list(remove_long_words([LINES[0], *long]))
    assert [line.split() for line in lines[:5]] == [LINES[0].split(), ["before", "after"], ["and"], ["a", "b"], []]
    assert set("xyz7-é") <= set(lines[5].split(" "))
    assert f"{1500 + 2000 + 1500 + 5000 + 200_000:,} characters" in caplog.text


@pytest.mark.parametrize("kind", ["bpe", "bytes", "unigram", "words", "wordpiece", "spaces"])
def test_one_long_repetitive_word_does_not_slow_training(kind: str) -> None:
    begun = time.monotonic()
    config = TokenizerConfig.model_validate({"kind": kind, "vocab": 2000})
    tokenizer = train_tokenizer(config, ["abcdefghij" * 20_000, "a dog", "a dog"])  # BPE of the whole word: 27 s
    assert time.monotonic() - begun < 5
    if kind not in ("words", "spaces"):
        assert tokenizer.decode(tokenizer.encode("a jig")) == "a jig"
