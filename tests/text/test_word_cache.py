"""Ids from cached words are those of the library, which encodes each text as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.text import word_cache
from heedful.text.library import LibraryCodec
from heedful.text.pipelines import BAR, PIPELINES
from heedful.text.tokenizer import TokenizerConfig
from heedful.text.train import train_tokenizer

TAGS = ["<2de>", "<mask>"]
WORDS = [
    "a",
    "ab",
    "Ab1",
    "don't",
    "b,",
    f"{BAR}",
    f"a{BAR}",
    f"{BAR}b",
    "\u00a0",
    "a\u00a0",
    "\u00a8b",
    "\t",
    "e\u0301",
    "\u0301",
    "\u3000a",
]
TEXT = st.lists(st.sampled_from([*WORDS, *TAGS, "x<2de>", "<2de>x", "", "", "<s>"]), max_size=8).map(" ".join) | st.text(
    max_size=12
)


@cache
def codec(kind: str, form: str, tagged: bool) -> LibraryCodec:
    lines = [f"{first} {second}  {second}" for first in WORDS for second in WORDS] * 3
    options = {} if kind == "characters" else {"min_frequency": 1} if kind in ("words", "spaces") else {"vocab": 400}
    config = TokenizerConfig.model_validate({"kind": kind, "normalize": form, **options})
    trained = train_tokenizer(config, lines, TAGS if tagged else []).codec
    assert isinstance(trained, LibraryCodec)
    return trained


@pytest.mark.parametrize("tagged", [False, True])
@pytest.mark.parametrize("form", ["none", "nfkc"])
@pytest.mark.parametrize("kind", PIPELINES)
@settings(max_examples=60, deadline=None)
@given(texts=st.lists(TEXT, max_size=5))
def test_cached_words_give_the_ids_of_the_library(kind: str, form: str, tagged: bool, texts: list[str]) -> None:
    trained = codec(kind, form, tagged)
    assert trained.encode(texts) == trained.encode_whole(texts)


def test_the_cache_may_be_cleared_by_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = codec("bpe", "none", False)
    words = trained.word_cache
    encode = words.encode_whole
    expected = [encode([text])[0] for text in ("ab a ab", "b c")]

    def cleared(texts: Sequence[str]) -> list[list[int]]:
        words.clear()
        return encode(texts)

    monkeypatch.setattr(words, "encode_whole", cleared)
    assert trained.encode(["ab a ab", "b c"]) == expected


def test_the_cache_is_bounded_and_words_are_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_cache, "MAX_CACHED", 100)
    trained = codec("bpe", "none", False)
    words = trained.word_cache
    words.clear()
    asked: list[str] = []
    encode = words.encode_whole

    def asking(texts: Sequence[str]) -> list[list[int]]:
        asked.extend(texts)
        return encode(texts)

    monkeypatch.setattr(words, "encode_whole", asking)
    assert trained.encode(["ab a ab", "a a"]) == [encode([text])[0] for text in ("ab a ab", "a a")]
    assert sorted(asked) == ["a", "ab"]
    for start in range(0, 1000, 10):
        trained.encode([f"{number}" for number in range(start, start + 10)])
        assert words.characters <= 100 + 10 * 3
