"""Metrics of labels against hand-computed values and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest

from heedful.evaluation import labels
from heedful.evaluation.labels import Figure, Indices
from heedful.evaluation.resampling import Numbers, bootstrap_sums, interval
from heedful.evaluation.significance import compare_statistics

LOGITS = np.log([[0.72, 0.18, 0.1], [0.3, 0.42, 0.28], [0.1, 0.85, 0.05], [0.25, 0.1, 0.65]])
GOLD = np.array([0, 0, 1, 1])  # predicted: 0, 1, 1, 2


def values(figures: dict[str, Figure]) -> dict[str, float]:
    return {name: figure.statistics.value() for name, figure in figures.items()}


def test_one_label_per_text_by_hand() -> None:
    figures = values(labels.single_label_figures(LOGITS, GOLD))
    assert figures["loss"] == pytest.approx(-np.log([0.72, 0.3, 0.85, 0.1]).mean())
    assert figures["accuracy"] == 0.5
    assert figures["macro_f1"] == pytest.approx((2 / 3 + 2 / 4 + 0) / 3)
    # four bins with one example each: |0 - 0.42|, |0 - 0.65|, |1 - 0.72|, |1 - 0.85|
    assert figures["calibration_error"] == pytest.approx((0.42 + 0.65 + 0.28 + 0.15) / 4)


def test_a_bin_of_the_calibration_error_is_compared_as_a_whole() -> None:
    statistics = labels.calibration_statistics(np.array([0.92, 0.98, 0.96, 0.94, 1.0]), np.array([1.0, 1, 1, 0, 1]))
    assert statistics.value() == pytest.approx(0.96 - 0.8)


def test_confusion_matrix_and_rows_of_labels_by_hand() -> None:
    predicted = LOGITS.argmax(1)
    assert labels.confusion_matrix(GOLD, predicted, 3).tolist() == [[1, 1, 0], [0, 1, 1], [0, 0, 0]]
    rows = labels.label_rows(labels.one_hot(GOLD, 3), labels.one_hot(predicted, 3))
    np.testing.assert_allclose(np.array(rows), [(1.0, 0.5, 2 / 3, 2), (0.5, 0.5, 0.5, 2), (0.0, 0.0, 0.0, 0)])


def test_several_labels_per_text_by_hand() -> None:
    logits = np.array([[2.0, -1.0, 1.0], [-1.0, -2.0, 3.0], [-3.0, -1.0, -1.0]])
    figures = values(labels.multi_label_figures(logits, [(0, 2), (0, 2), ()]))
    losses = np.logaddexp(0, [[-2, -1, -1], [1, -2, -3], [-3, -1, -1]])
    assert figures["loss"] == pytest.approx(losses.mean())
    assert figures["exact_match"] == pytest.approx(2 / 3)
    assert figures["micro_f1"] == pytest.approx(2 * 3 / (3 + 4))
    assert figures["macro_f1"] == pytest.approx((2 / 3 + 1) / 2)  # the second label is neither true nor predicted


def random_case(seed: int) -> tuple[Numbers, Indices]:
    generator = np.random.default_rng(seed)
    return generator.normal(size=(200, 5)) * 3, generator.integers(5, size=200)


def test_metrics_equal_those_of_scikit_learn() -> None:
    reference = pytest.importorskip("sklearn.metrics")
    logits, gold = random_case(1)
    predicted, figures = logits.argmax(1), values(labels.single_label_figures(logits, gold))
    assert figures["loss"] == pytest.approx(reference.log_loss(gold, labels.softmax(logits)))
    assert figures["accuracy"] == pytest.approx(reference.accuracy_score(gold, predicted))
    assert figures["macro_f1"] == pytest.approx(reference.f1_score(gold, predicted, average="macro"))
    assert labels.confusion_matrix(gold, predicted, 5).tolist() == reference.confusion_matrix(gold, predicted).tolist()
    expected = reference.precision_recall_fscore_support(gold, predicted)
    rows = labels.label_rows(labels.one_hot(gold, 5), labels.one_hot(predicted, 5))
    np.testing.assert_allclose(np.array(rows), np.stack(expected, 1))
    sets = [tuple(np.flatnonzero(row > 1).tolist()) for row in random_case(2)[0]]
    several, true = values(labels.multi_label_figures(logits, sets)), labels.as_sets(sets, 5)
    for average in ("micro", "macro"):
        assert several[f"{average}_f1"] == pytest.approx(reference.f1_score(true, logits > 0, average=average))
    assert several["exact_match"] == pytest.approx(reference.accuracy_score(true, logits > 0))


def test_the_interval_of_the_calibration_error_contains_it() -> None:
    confidence = np.repeat([0.56, 0.66, 0.76, 0.86, 0.96], 20)
    hits = np.concatenate([np.arange(20) < right for right in (11, 13, 15, 17, 19)]).astype(float)
    statistics = labels.calibration_statistics(confidence, hits)
    assert statistics.value() == pytest.approx(0.01)
    sums = bootstrap_sums(statistics.rows, 200, 1)
    assert interval(statistics.values(sums))[0] > 0.01  # resamples have a larger error
    low, high = interval(statistics.bootstrap_values(sums))
    assert 0 <= low < 0.01 < high < 0.2
    other = labels.calibration_statistics(confidence, np.zeros(100))
    compared = compare_statistics("calibration_error", statistics, other, higher_is_better=False, trials=200)
    assert compared.low < compared.difference < compared.high
    assert compared.baseline.low is not None and compared.baseline.low < compared.baseline.value


def test_all_labels_right_have_a_macro_f1_of_one_in_every_resample() -> None:
    gold = labels.one_hot(np.array([0, 0, 1, 1, 2, 2, 2, 0]), 4)
    statistics = labels.f1_statistics(gold, gold, labels.macro_f1)
    assert statistics.values(bootstrap_sums(statistics.rows, 200, 1)).tolist() == [1.0] * 200
    nothing = np.zeros((3, 4), bool)
    assert labels.f1_statistics(nothing, nothing, labels.macro_f1).value() == 0


def test_probabilities_of_large_logits_are_finite() -> None:
    large = np.array([[1e4, -1e4]])
    assert labels.softmax(large).tolist() == labels.sigmoid(large).tolist() == [[1.0, 0.0]]
    assert values(labels.single_label_figures(large, np.array([1])))["loss"] == 2e4
