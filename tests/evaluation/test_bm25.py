"""BM25 equals its formula, computed by hand and document by document."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from heedful.evaluation.bm25 import BM25, split_words


def test_scores_by_hand() -> None:
    """Three documents of 2, 4 and 6 words, mean 4. "cat" is in two of them, once and twice; "dog" in one."""
    index = BM25(["a cat", "a dog runs here", "cat cat on the mat it"], k1=1.2, b=0.75)
    cat = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    dog = math.log(1 + (3 - 1 + 0.5) / (1 + 0.5))
    first = cat * 1 * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 2 / 4))
    second = dog * 1 * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 4 / 4))
    third = cat * 2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 6 / 4))
    assert index.scores("Cat, dog!").tolist() == pytest.approx([first, second, third])
    assert index.scores("cat cat").tolist() == pytest.approx([2 * first, 0.0, 2 * third])
    assert index.scores("fish").tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(("k1", "b"), [(1.2, 0.75), (0.0, 0.5), (3.0, 0.0), (2.0, 1.0)])
def test_scores_equal_the_sum_over_the_words_of_each_document(k1: float, b: float) -> None:
    draw = random.Random(1)
    words = [f"w{i}" for i in range(12)]
    documents = [" ".join(draw.choices(words, k=draw.randint(1, 9))) for _ in range(30)]
    index, mean = BM25(documents, k1=k1, b=b), sum(len(d.split()) for d in documents) / 30
    for _ in range(10):
        query = " ".join(draw.choices([*words, "unknown"], k=4))
        expected = []
        for document in documents:
            total = 0.0
            for word in query.split():
                n = sum(word in other.split() for other in documents)
                tf = document.split().count(word)
                norm = tf + k1 * (1 - b + b * len(document.split()) / mean)
                total += math.log(1 + (30 - n + 0.5) / (n + 0.5)) * tf * (k1 + 1) / norm if tf else 0.0
            expected.append(total)
        np.testing.assert_allclose(index.scores(query), expected, rtol=1e-12, atol=1e-12)


def test_words_are_lowercase_without_punctuation_and_no_documents_have_no_scores() -> None:
    assert split_words("It's 5 o'clock, NOW!") == ["it's", "5", "o'clock", "now"]
    assert BM25([]).scores("a").shape == (0,)
    assert BM25(["", "!"]).scores("a").tolist() == [0.0, 0.0]
