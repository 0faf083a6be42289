"""The averaged perceptron and the toy of the claim about tagging."""

from __future__ import annotations

import copy

import pytest
import tagging
from claims.tagging import CLASSES, FIRST, sentences

from heedful.data.tagged import TaggedSentence

pytestmark = pytest.mark.benchmark


def test_a_label_of_the_toy_is_the_class_of_the_word_before() -> None:
    made = sentences(50, seed=3)
    assert len(made) == 50 and made == sentences(50, seed=3) != sentences(50, seed=4)
    for words, labels in made:
        assert labels == [FIRST, *(f"c{word[1]}" for word in words[:-1])]
    assert {label for _, labels in made for label in labels} == {FIRST, *(f"c{one}" for one in range(CLASSES))}


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
