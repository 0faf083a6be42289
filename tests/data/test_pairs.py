from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.pairs import Pair, check_pair, check_pairs, pairs, sentences
from heedful.data.sources import CorpusConfig, RawPair
from heedful.data.splits import DataConfig
from heedful.data.unusable import LineProblem
from heedful.errors import DataError
from heedful.runs.config import Run
from heedful.tasks.translation.data import TranslationData

CASES: dict[str, tuple[bytes, bytes, str | None, str]] = {
    "fine": (b"a", b"b", None, ""),
    "white space stays": (b" a ", b"b\t", None, ""),
    "source bytes": (b"ab\xff", b"b", "utf8", "source"),
    "target bytes": (b"a", b"\xed\xa0\x80", "surrogate", "target"),
    "nul in source": (b"a\0", b"b", "nul", "source"),
    "nul in target": (b"a", b"\0", "nul", "target"),
    "empty source": (b"", b"b", "empty", "source"),
    "blank target": (b"a", " \t\u3000".encode(), "empty", "target"),
    "at the ratio": (b"a" * 5, b"b" * 45, None, ""),
    "over the ratio": (b"a" * 5, b"b" * 46, "ratio", "source"),
    "over it the other way": (b"a" * 46, b"b" * 5, "ratio", "source"),
    "short sides are excused": (b"a", b"b" * 45, None, ""),
}


@pytest.mark.parametrize("case", CASES)
def test_each_problem_is_reported_for_its_side(case: str) -> None:
    source, target, kind, side = CASES[case]
    result = check_pair(RawPair(7, source, target), max_ratio=9.0)
    if kind is None:
        assert result == Pair(7, source.decode(), target.decode())
    else:
        assert isinstance(result, LineProblem)
        assert (result.kind, result.line, result.side) == (kind, 7, side)


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_a_pair_is_usable_exactly_by_the_rules(source: bytes, target: bytes) -> None:
    try:
        sides = [source.decode().strip(), target.decode().strip()]
    except UnicodeDecodeError:
        sides = []
    lengths = sorted(map(len, sides))
    good = bool(sides) and all(sides) and b"\0" not in source + target and lengths[1] <= 4 * max(lengths[0], 5)
    assert isinstance(check_pair(RawPair(1, source, target), max_ratio=4.0), Pair) == good


def corpus_of(folder: Path, source: bytes, target: bytes, tag: str | None = None) -> CorpusConfig:
    (folder / "a").write_bytes(source)
    (folder / "b").write_bytes(target)
    return CorpusConfig(source=f"{folder}/a", target=f"{folder}/b", tag=tag)


def test_unusable_lines_are_skipped_and_the_others_keep_their_numbers(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, b"one\n\xff\nthree\n\n", b"eins\nzwei\ndrei\nvier\n", tag="<2de>")
    assert list(pairs(corpus)) == [Pair(1, "<2de> one", "eins"), Pair(3, "<2de> three", "drei")]


def test_json_with_invalid_unicode_is_skipped_like_invalid_bytes(tmp_path: Path) -> None:
    lines = [rb'{"source": "\ud800", "target": "b"}', b'{"source": "\xff", "target": "b"}', b'{"source": "a", "target": "b"}']
    (tmp_path / "a").write_bytes(b"\n".join(lines))
    results = list(check_pairs(CorpusConfig(jsonl=f"{tmp_path}/a")))
    assert [getattr(result, "kind", None) for result in results] == ["surrogate", "utf8", None]


def test_tokenizer_training_text_has_no_tags(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, b"one\n", b"eins\n", tag="<2de>")
    assert list(sentences([corpus, corpus], "source")) == ["one", "one"]
    assert list(sentences([corpus], "target")) == ["eins"]


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (b"one\nt\xffo\n", b"eins\nzwei\n", "a line 2: byte 2 is not UTF-8"),
        (b"one\ntwo\n", b"eins\nz\0\n", "b line 2: the text contains a NUL byte"),
        (b"one\ntwo\n", b"\nzwei\n", "b line 1: the text is empty or white space"),
        (b"one\n@@\n", b"eins\n" + b"z" * 50, "a line 2: 2 characters, but 50 in the translation: '@@'"),
    ],
)
def test_strict_stops_at_the_first_problem(tmp_path: Path, source: bytes, target: bytes, message: str) -> None:
    with pytest.raises(DataError) as caught:
        list(check_pairs(corpus_of(tmp_path, source, target), strict=True))
    assert (
        str(caught.value)
        == f"{tmp_path}/{message}\n\nhint: correct the line, or set data.strict = false to count and skip such lines"
    )


def test_a_tokenizer_is_trained_on_the_usable_pairs(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, b"one\nfive\n", b"eins\n" + b"5" * 50)
    assert list(sentences([corpus], "source", max_ratio=20.0)) == ["one", "five"]
    data = DataConfig(train=(corpus,), valid=(corpus,), max_ratio=20.0)
    assert list(TranslationData(Run(data=data)).lines("source")) == ["one", "five"]
