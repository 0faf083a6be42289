"""Metrics of predicted labels: loss, accuracy, F1, calibration error; one label per text, or any number of them.

    precision = correct / predicted,  recall = correct / true,  F1 = 2 correct / (predicted + true)      for each label
    macro F1  = mean of the labels' F1,  micro F1: of the counts of all labels together;  0 / 0 = 0, but the mean is over the
                labels that are true or predicted at least once, also in a resample
    calibration error = sum_b n_b / n |accuracy_b - confidence_b|       over 10 bins of the confidence, the highest probability
                                                                        (Guo et al., 2017)

Every metric is a function of sums over examples, so that evaluation/resampling.py gives its interval, and
evaluation/significance.py compares two systems on the same examples. Labels are indices from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.evaluation.resampling import Numbers, Statistics

Indices = NDArray[np.int64]
BINS = 10  # of the calibration error
THRESHOLD = 0.5  # with any number of labels, those with a higher probability are predicted


class Figure(NamedTuple):
    """A metric on a test set."""

    statistics: Statistics
    higher_is_better: bool


class LabelRow(NamedTuple):
    """How well one label is predicted."""

    precision: float
    recall: float
    f1: float
    examples: int  # that have it


def softmax(logits: Numbers) -> Numbers:
    """Over the last axis."""
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    shares: Numbers = powers / powers.sum(-1, keepdims=True)
    return shares


def sigmoid(logits: Numbers) -> Numbers:
    result: Numbers = np.exp(-np.logaddexp(0.0, -logits))
    return result


def divide(first: Numbers, second: Numbers) -> Numbers:
    """first / second, and 0 / 0 = 0."""
    result: Numbers = np.divide(first, second, out=np.zeros_like(first), where=second != 0)
    return result


def confusion_matrix(gold: Indices, predicted: Indices, labels: int) -> Indices:
    """(true label, predicted label): number of examples."""
    return np.bincount(gold * labels + predicted, minlength=labels * labels).reshape(labels, labels)


def label_rows(gold: NDArray[np.bool_], predicted: NDArray[np.bool_]) -> list[LabelRow]:
    """The row of each label; gold, predicted (examples, labels): which labels each example has."""
    correct, found, true = (part.sum(0).astype(float) for part in (gold & predicted, predicted, gold))
    columns = divide(correct, found), divide(correct, true), divide(2 * correct, found + true)
    return [LabelRow(float(p), float(r), float(f), int(n)) for p, r, f, n in zip(*columns, true, strict=True)]


def one_hot(indices: Indices, labels: int) -> NDArray[np.bool_]:
    """(examples,) -> (examples, labels)."""
    return np.eye(labels, dtype=bool)[indices]


def single_label_figures(logits: Numbers, gold: Indices) -> dict[str, Figure]:
    """Loss, accuracy, macro F1 and calibration error; logits (examples, labels), gold (examples,)."""
    shifted = logits - logits.max(-1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(-1)) - shifted[np.arange(len(gold)), gold]  # -log p of the true label
    predicted = logits.argmax(-1)
    hits, labels = (predicted == gold).astype(float), logits.shape[1]
    return {
        "loss": Figure(mean_statistics(losses), False),
        "accuracy": Figure(mean_statistics(hits), True),
        "macro_f1": Figure(f1_statistics(one_hot(gold, labels), one_hot(predicted, labels), macro_f1), True),
        "calibration_error": Figure(calibration_statistics(softmax(logits).max(-1), hits), False),
    }


def multi_label_figures(logits: Numbers, gold: Sequence[tuple[int, ...]]) -> dict[str, Figure]:
    """Loss (mean over examples and labels), exact match, micro and macro F1; gold: the labels of each example."""
    true = as_sets(gold, logits.shape[1])
    predicted = sigmoid(logits) > THRESHOLD
    losses = np.logaddexp(0.0, np.where(true, -logits, logits)).mean(-1)  # binary cross-entropy
    return {
        "loss": Figure(mean_statistics(losses), False),
        "exact_match": Figure(mean_statistics((true == predicted).all(-1).astype(float)), True),
        "micro_f1": Figure(f1_statistics(true, predicted, micro_f1), True),
        "macro_f1": Figure(f1_statistics(true, predicted, macro_f1), True),
    }


def as_sets(labels: Sequence[tuple[int, ...]], count: int) -> NDArray[np.bool_]:
    """The labels of each example -> (examples, count)."""
    sets = np.zeros((len(labels), count), dtype=bool)
    for row, chosen in zip(sets, labels, strict=True):
        row[list(chosen)] = True
    return sets


def mean_statistics(values: Numbers) -> Statistics:
    """The mean over examples."""
    rows = np.stack([values, np.ones_like(values)], 1)  # (examples, 2): value, 1
    return Statistics(rows, lambda sums: sums[0] / sums[1], "unit:example|mean")


def f1_statistics(
    gold: NDArray[np.bool_], predicted: NDArray[np.bool_], combine: Callable[[Numbers, Numbers], float]
) -> Statistics:
    """gold, predicted (examples, labels); combine: correct and predicted + true of each label -> F1."""
    labels = gold.shape[1]
    rows = np.hstack([gold & predicted, gold.astype(float) + predicted]).astype(float)  # (examples, 2 labels)

    def formula(sums: list[float]) -> float:
        return combine(np.array(sums[:labels]), np.array(sums[labels:]))

    return Statistics(rows, formula, f"unit:example|{combine.__name__}")


def macro_f1(correct: Numbers, marked: Numbers) -> float:
    occurs = marked > 0
    return float((2 * correct[occurs] / marked[occurs]).mean()) if occurs.any() else 0.0


def micro_f1(correct: Numbers, marked: Numbers) -> float:
    return macro_f1(correct.sum(keepdims=True), marked.sum(keepdims=True))


def calibration_statistics(confidence: Numbers, hits: Numbers) -> Statistics:
    """The expected calibration error; confidence (examples,): probability of the predicted label; hits: 1 if it is correct."""
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    member = np.eye(BINS)[bins]  # (examples, bins)
    rows = np.hstack([member * (hits - confidence)[:, None], np.ones((len(hits), 1))])  # (examples, bins + 1)
    return Statistics(rows, lambda sums: float(np.abs(sums[:-1]).sum() / sums[-1]), f"unit:example|bins:{BINS}", is_biased=True)
