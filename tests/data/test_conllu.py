"""Dependency trees: the restored text, arcs between its words, and errors with the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from heedful.data.conllu import Arc, read_trees
from heedful.errors import DataError


def row(number: str, form: str, head: str, relation: str, more: str = "_") -> str:
    return "\t".join([number, form, *"____", head, relation, "_", more])


DONT = [
    "# text = ignored",
    row("1", "I", "4", "nsubj"),
    row("2-3", "don't", "_", "_"),
    row("2", "do", "4", "aux"),
    row("3", "n't", "4", "advmod"),
    row("4", "know", "0", "root", "Typo=No|SpaceAfter=No"),
    row("4.1", "unsaid", "_", "_"),
    row("5", ".", "4", "punct"),
]
SEEN = ["", row("1", "She", "2", "nsubj:pass"), row("2", "went", "0", "root"), "", ""]


def write(path: Path, lines: list[str]) -> Path:
    file = path / "trees.conllu"
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def test_the_text_is_restored_and_arcs_are_between_its_words(tmp_path: Path) -> None:
    first, second = read_trees(write(tmp_path, [*DONT, *SEEN]))
    assert first.text == "I don't know."
    assert first.arcs == [Arc(0, 2, "nsubj"), Arc(1, 2, "aux"), Arc(1, 2, "advmod")]  # the full stop belongs to its word
    assert (second.text, second.arcs) == ("She went", [Arc(0, 1, "nsubj")])  # subtypes count as their type


def test_a_file_need_not_end_with_a_blank_line(tmp_path: Path) -> None:
    assert len(list(read_trees(write(tmp_path, DONT)))) == 1


def test_a_form_of_two_words_is_two_words_of_the_text(tmp_path: Path) -> None:
    rows = [row("1", "20 000", "2", "nummod"), row("2", "men", "3", "nsubj"), row("3", "left", "0", "root")]
    (only,) = read_trees(write(tmp_path, rows))
    assert only.text.split()[2] == "men" and only.arcs == [Arc(0, 2, "nummod"), Arc(2, 3, "nsubj")]


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (["1\tI\t2"], "line 1 has 3 columns; expected the 10 tab-separated columns"),
        ([*SEEN, row("2", "I", "0", "root")], "line 6: the token is numbered '2'; expected 1"),
        ([row("one", "I", "0", "root")], "line 1: the token is numbered 'one'"),
        (["# no", row("1", "I", "2", "root")], "line 2: the head is '2'; expected a number from 0 to 1"),
        ([row("1", "I", "_", "root")], "line 1: the head is '_'"),
        (
            [row("1-2", "don't", "_", "_"), row("1", "do", "0", "root")],
            "line 1: the span 1-2 exceeds the sentence, which has 1 tokens",
        ),
    ],
)
def test_errors_name_the_line(lines: list[str], problem: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=problem):
        list(read_trees(write(tmp_path, lines)))


def test_a_number_of_thousands_of_digits_is_an_error_that_names_the_line(tmp_path: Path) -> None:
    for number, head in (("1", "9" * 5000), ("9" * 5000, "0"), (f"1-{'9' * 5000}", "0")):
        with pytest.raises(DataError, match=r"trees\.conllu line 1"):
            list(read_trees(write(tmp_path, [row(number, "x", head, "root")])))
