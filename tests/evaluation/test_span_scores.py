from __future__ import annotations

import pytest

from heedful.evaluation.spans import Span, SpanCounts, count_spans, f1, is_bio, spans_of


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("O O", []),
        ("B-PER I-PER O B-LOC", [Span("PER", 0, 2), Span("LOC", 3, 4)]),
        ("B-PER B-PER", [Span("PER", 0, 1), Span("PER", 1, 2)]),
        ("I-PER I-PER O I-LOC", [Span("PER", 0, 2), Span("LOC", 3, 4)]),  # as conlleval: I- after O starts a span
        ("B-PER I-LOC I-LOC", [Span("PER", 0, 1), Span("LOC", 1, 3)]),  # as conlleval: I- of another label starts a span
    ],
)
def test_spans_of_valid_and_invalid_sequences(labels: str, expected: list[Span]) -> None:
    assert spans_of(labels.split()) == expected


def test_a_span_counts_only_with_label_start_and_end() -> None:
    gold = ["B-PER", "I-PER", "O", "B-LOC", "O", "B-ORG"]
    predicted = ["B-PER", "O", "O", "B-LOC", "O", "B-LOC"]  # a span too short, one correct, one with another label
    assert count_spans(predicted, gold) == SpanCounts(1, 3, 3)
    assert f1(1, 3, 3) == pytest.approx(1 / 3)
    assert f1(2, 3, 5) == pytest.approx(2 * (2 / 3) * (2 / 5) / (2 / 3 + 2 / 5))  # harmonic mean of precision and recall
    assert f1(0, 0, 0) == 0


def test_which_labels_are_bio() -> None:
    assert is_bio(["O", "B-x", "I-x"]) and is_bio(["B-x"])
    assert not is_bio(["O"]) and not is_bio(["NOUN", "O"]) and not is_bio(["O", "I-x"]) and not is_bio(["O", "B-x", "S-x"])
