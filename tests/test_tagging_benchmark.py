"""The averaged perceptron."""

from __future__ import annotations

import copy

import pytest
import tagging

from heedful.data.tagged import TaggedSentence

pytestmark = pytest.mark.benchmark


def test_averaged_weights_are_the_mean_over_all_updates() -> None:
    model = tagging.Perceptron(["A", "B"])
    history = []
    for gold, given in [("A", ["x"]), ("B", ["x", "y"]), ("A", ["y"]), ("A", ["x"]), ("B", ["y"])] * 3:
        model.update(gold, model.choose(given), given)
        history.append(copy.deepcopy(model.weights))
    model.average()
    keys = [(feature, label) for feature in ("x", "y") for label in ("A", "B")]
    for feature, label in keys:
        # before update n the weights are those after update n - 1
        before = [0.0, *(weights.get(feature, {}).get(label, 0.0) for weights in history[:-1])]
        assert model.weights.get(feature, {}).get(label, 0.0) == pytest.approx(sum(before) / len(history))


def test_a_small_set_is_learned_and_unknown_words_are_labeled_by_their_suffix() -> None:
    def sentence(noun: str, verb: str) -> TaggedSentence:
        return TaggedSentence(1, ["the", noun, verb], ["DET", "NOUN", "VERB"], [1, 2, 3])

    train = [sentence(f"{stem}tion", f"{stem}izes") for stem in ("na", "ra", "sta", "mo", "lo")]
    model = tagging.train(train)
    assert tagging.accuracy(model, train) == 1.0
    assert model.tag(["the", "vocation", "realizes"]) == ["DET", "NOUN", "VERB"]
