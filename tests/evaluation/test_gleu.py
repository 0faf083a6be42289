"""GLEU is the minimum of precision and recall over n-grams of one to four tokens."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.evaluation.gleu import gleu
from heedful.evaluation.metrics import METRICS

SENTENCES = st.lists(st.integers(0, 3), max_size=9)


def by_hand(hypothesis: Sequence[int], reference: Sequence[int]) -> float:
    """Remove each matched n-gram from the reference, and return the minimum of precision and recall."""
    said, wanted = ([tuple(x[i : i + n]) for n in (1, 2, 3, 4) for i in range(len(x) - n + 1)] for x in (hypothesis, reference))
    left, matches = list(wanted), 0
    for gram in said:
        if gram in left:
            left.remove(gram)
            matches += 1
    return min(matches / len(said), matches / len(wanted)) if said and wanted else float(said == wanted)


@given(SENTENCES, SENTENCES)
def test_gleu_is_the_minimum_of_precision_and_recall(one: list[int], other: list[int]) -> None:
    assert gleu(one, other) == pytest.approx(by_hand(one, other))


@given(SENTENCES, SENTENCES)
def test_gleu_of_a_sentence_with_itself_is_one_and_gleu_is_symmetric(one: list[int], other: list[int]) -> None:
    assert gleu(one, one) == 1.0
    assert gleu(one, other) == gleu(other, one)
    assert (gleu(one, other) == 1.0) <= (len(one) == len(other))


def test_an_example_worked_by_hand() -> None:
    # The Cat Sat On The Mat, The Cat Is On The Mat, a letter a word: 5 words, 3 pairs, 1 triple of 6 + 5 + 4 + 3 on either side
    assert gleu("tcsotm", "tciotm") == pytest.approx(9 / 18)
    assert gleu("ab", "abcd") == pytest.approx(3 / 10)


def test_the_metric_is_the_mean_over_sentences() -> None:
    score = METRICS["gleu"](["a b", "a b c d"], ["a b c d", "a b c d"])
    assert score.value == pytest.approx(100 * (0.3 + 1) / 2)


def test_thousands_of_sentences_are_scored_in_a_second() -> None:
    began = time.process_time()
    for begin in range(1000):
        gleu(range(begin, begin + 20), range(begin + 3, begin + 23))
    assert time.process_time() - began < 1.0
