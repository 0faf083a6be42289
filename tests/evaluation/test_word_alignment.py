"""The alignment error rate: a known value, its limits, and the file format."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import DataError
from heedful.evaluation.word_alignment import (
    Alignment,
    alignment_error_rate,
    format_alignment,
    parse_alignments,
    precision_and_recall,
)

links = st.frozensets(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12)
alignments = st.builds(lambda sure, possible: Alignment(sure, sure | possible), links, links)


def test_the_worked_example_is_four_tenths() -> None:
    gold = parse_alignments(["0-0 1-1 2?2"])
    assert alignment_error_rate([{(0, 0), (1, 2), (2, 2)}], gold).value == pytest.approx(0.4)


@given(st.lists(links, min_size=1, max_size=5))
def test_predicting_exactly_the_sure_links_is_perfect(found: list[frozenset[tuple[int, int]]]) -> None:
    assert alignment_error_rate(found, [Alignment(line, line) for line in found]).value == 0


@given(st.lists(st.tuples(links, alignments), min_size=1, max_size=5))
def test_the_rate_equals_the_formula_over_pooled_links(
    pairs: list[tuple[frozenset[tuple[int, int]], Alignment]],
) -> None:
    def pool(side: list[frozenset[tuple[int, int]]]) -> set[tuple[int, int, int]]:
        return {(sentence, i, j) for sentence, line in enumerate(side) for i, j in line}

    found = pool([line for line, _ in pairs])
    sure, possible = pool([gold.sure for _, gold in pairs]), pool([gold.possible for _, gold in pairs])
    size = len(found) + len(sure)
    expected = 1 - (len(found & sure) + len(found & possible)) / size if size else 0
    value = alignment_error_rate([line for line, _ in pairs], [gold for _, gold in pairs]).value
    assert value == pytest.approx(expected)
    assert 0 <= value <= 1


@given(st.lists(alignments, max_size=5))
def test_parsing_inverts_formatting(lines: list[Alignment]) -> None:
    assert parse_alignments(format_alignment(line) for line in lines) == lines


@pytest.mark.parametrize("link", ["1", "1-", "-1-2", "1:2", "a-b", "1-2-3", "1--2", "²-1"])
def test_a_malformed_link_is_an_error_with_its_line(link: str) -> None:
    with pytest.raises(DataError, match=r"line 2: .* is not a link; expected i-j"):
        parse_alignments(["0-0 1?1", f"0-0 {link}"])


def test_counts_are_checked() -> None:
    with pytest.raises(DataError, match="cannot score 1 alignments, 2 references"):
        alignment_error_rate([set()], parse_alignments(["0-0", "1-1"]))
    with pytest.raises(DataError, match="nothing to score"):
        alignment_error_rate([], [])


def test_the_interval_contains_the_value() -> None:
    gold = parse_alignments(["0-0 1-1", "0-0 1?1", "0-1 1-0", "0-0"] * 10)
    score = alignment_error_rate([{(0, 0), (1, 1)}] * 40, gold, bootstrap=200)
    assert score.low is not None and score.high is not None
    assert 0 < score.low < score.value < score.high < 1
    assert score.signature == "unit:word|bs:200|seed:12345|links:sure,possible"


def test_the_gold_alignments_of_the_hansards_can_be_read_and_scored() -> None:
    folder = os.environ.get("HEED_DATA")
    if folder is None:
        pytest.skip("HEED_DATA is not set: no gold alignments to read")
    with gzip.open(Path(folder) / "alignment-en-fr" / "test.align.gz", "rt", encoding="utf-8") as file:
        gold = parse_alignments(file)
    diagonal = [{(i, j) for i, j in line.possible if i == j} for line in gold]
    assert len(gold) == 200
    assert alignment_error_rate([line.sure for line in gold], gold).value == 0
    assert 0 < alignment_error_rate(diagonal, gold).value < 1


def test_precision_is_over_predicted_links_and_recall_over_sure_links() -> None:
    gold = [Alignment(frozenset({(0, 0), (1, 1)}), frozenset({(0, 0), (1, 1), (2, 2)}))]
    assert precision_and_recall([{(0, 0), (1, 2), (2, 2)}], gold) == (2 / 3, 1 / 2)
    assert precision_and_recall([set()], gold) == (1.0, 0.0)
    assert precision_and_recall([{(0, 0)}], [Alignment(frozenset(), frozenset())]) == (0.0, 1.0)
