"""Baselines of text classification on texts whose labels follow from one word, or from a pair of words."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from heedful.evaluation import baselines

pytestmark = pytest.mark.skipif(find_spec("sklearn") is None, reason="requires scikit-learn")

WORDS = ["the film is good", "a good one", "it is bad", "bad film", "good", "so bad"] * 4
WORD_LABELS = np.eye(2, dtype=bool)[[1, 1, 0, 0, 1, 0] * 4]
PAIRS = ["not good", "good not", "not bad", "bad not"] * 8  # the order decides
PAIR_LABELS = np.eye(2, dtype=bool)[[0, 1, 1, 0] * 8]


def test_the_majority_class_is_the_most_frequent() -> None:
    gold = np.eye(3, dtype=bool)[[0, 2, 2, 1]]
    assert baselines.majority(["a"] * 4, gold, ["b", "c"], one_label=True).argmax(1).tolist() == [2, 2]


def test_words_decide() -> None:
    for function in (baselines.bag_of_words, baselines.naive_bayes_features):
        found = function(WORDS, WORD_LABELS, ["what a good film", "what a bad film"], one_label=True)
        assert found.argmax(1).tolist() == [1, 0]


def test_only_pairs_of_words_know_their_order() -> None:
    right = [
        (function(PAIRS, PAIR_LABELS, PAIRS, one_label=True) == PAIR_LABELS).all(1).mean()
        for function in (baselines.bag_of_words, baselines.naive_bayes_features)
    ]
    assert right[0] <= 0.75 and right[1] == 1.0


def test_the_log_count_ratio_by_hand() -> None:
    features = np.array([[1, 0], [1, 1], [0, 1]])
    ratio = baselines.log_count_ratio(features, np.array([True, True, False]))
    np.testing.assert_allclose(ratio, np.log([3 / 5, 2 / 5]) - np.log([1 / 3, 2 / 3]))


def test_any_number_of_labels() -> None:
    texts, gold = ["red", "round", "red round", "none"] * 5, np.array([[1, 0], [0, 1], [1, 1], [0, 0]] * 5, dtype=bool)
    found = baselines.naive_bayes_features(texts, gold, texts[:4], one_label=False)
    assert found.tolist() == gold[:4].tolist()
