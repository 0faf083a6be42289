"""Pairs and gold alignments from files: line-aligned, or an error with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from heedful.data.gold import Gold, SentencePair, builtin_gold, read_gold, read_words
from heedful.errors import DataError
from heedful.evaluation.word_alignment import Alignment, parse_alignment


def write(folder: Path, **files: str) -> list[Path]:
    for name, text in files.items():
        (folder / name).write_text(text)
    return [folder / name for name in files]


def test_line_n_of_all_files_belongs_to_pair_n(tmp_path: Path) -> None:
    gold = read_gold(*write(tmp_path, source="a b\nc\n", target="x\ny z\n", gold="0-0 1?0\n0-1\n"))
    assert gold.pairs == [SentencePair("a b", "x"), SentencePair("c", "y z")]
    assert gold.alignments == [
        Alignment(frozenset({(0, 0)}), frozenset({(0, 0), (1, 0)})),
        Alignment(frozenset({(0, 1)}), frozenset({(0, 1)})),
    ]


def test_swapping_twice_is_the_identity(tmp_path: Path) -> None:
    gold = read_gold(*write(tmp_path, source="a b\n", target="x\n", gold="0-0 1?0\n"))
    assert gold.swapped == Gold([SentencePair("x", "a b")], [Alignment(frozenset({(0, 0)}), frozenset({(0, 0), (0, 1)}))])
    assert gold.swapped.swapped == gold


@pytest.mark.parametrize(
    ("gold", "sentence"),
    [
        ("0-0\n", "source has 2 lines, but .*gold has 1"),
        ("0-0\n0-1\n", r"gold line 2: the link 0-1 is out of range; the source has 1 words, the target 1"),
        ("0-0\n0:0\n", r"gold line 2: '0:0' is not a link"),
    ],
)
def test_a_wrong_alignment_is_an_error_with_its_line(gold: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=sentence):
        read_gold(*write(tmp_path, source="a b\nc\n", target="x\ny\n", gold=gold))


def test_unequal_line_counts_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"source has 1 lines, but .*target has 2"):
        read_words(*write(tmp_path, source="a\n", target="x\ny\n"))


def test_the_built_in_corpus_aligns_every_word() -> None:
    gold = builtin_gold("valid", 50)
    assert len(gold.pairs) == 50
    for pair, line in zip(gold.pairs, gold.alignments, strict=True):
        assert {source for source, _ in line.sure} == set(range(len(pair.source.split())))
        assert {target for _, target in line.sure} == set(range(len(pair.target.split())))


def test_a_link_of_thousands_of_digits_is_an_error_that_names_the_line() -> None:
    with pytest.raises(DataError, match="here line 3: '0-9999"):
        parse_alignment("0-" + "9" * 5000, "here line 3")
