from __future__ import annotations

import pytest

from heedful.evaluation.answers import answer_f1, exact_match, normalize_answer


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Eiffel Tower.", "eiffel tower"),
        ("an apple a day", "apple day"),
        ("theater", "theater"),  # an article inside a word is kept
        ("U.S.A.", "usa"),
        ("don't", "dont"),
        ("the", ""),
    ],
)
def test_normalization_lowers_and_removes_punctuation_and_articles(text: str, expected: str) -> None:
    assert normalize_answer(text) == expected


@pytest.mark.parametrize(
    ("answer", "references", "exact", "f1"),
    [
        ("The cat!", ["cat"], 1, 1),
        ("black cat", ["a cat"], 0, 2 / 3),  # precision 1/2, recall 1
        ("in the red box", ["red box", "box"], 0, 4 / 5),  # words in, red, box: precision 2/3, recall 1
        ("cat cat dog", ["cat bird"], 0, 2 / 5),  # one cat is shared: precision 1/3, recall 1/2
        ("dog", ["cat"], 0, 0),
        ("the", ["a"], 1, 1),  # both are empty after normalization
        ("the", ["cat"], 0, 0),
    ],
)
def test_scores_equal_hand_worked_values(answer: str, references: list[str], exact: float, f1: float) -> None:
    assert exact_match(answer, references) == exact
    assert answer_f1(answer, references) == pytest.approx(f1)
