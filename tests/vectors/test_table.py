from __future__ import annotations

import math

import pytest
import torch

from heedful.errors import ConfigError, DataError
from heedful.vectors.table import Term, Vectors, format_query, neighbors, parse_queries

ROYAL = Vectors(
    ["king", "man", "woman", "queen", "apple", "▁pear"],
    torch.tensor([[1.0, 1, 0], [0, 1, 0], [0, 0, 2], [1, 0, 1.2], [-1, 0, 0], [-5, 0.1, 0]]),
)


def test_neighbors_are_sorted_by_cosine_without_the_word_itself() -> None:
    nearest = neighbors(ROYAL, [Term(1.0, "king")], 10)
    expected = {
        word: float(ROYAL.values[0] @ ROYAL.values[row]) / float(ROYAL.values[0].norm() * ROYAL.values[row].norm())
        for row, word in enumerate(ROYAL.words)
        if word != "king"
    }
    assert [near.word for near in nearest] == sorted(expected, key=lambda word: -expected[word])
    assert all(math.isclose(near.cosine, expected[near.word], abs_tol=1e-6) for near in nearest)


def test_an_analogy_is_a_sum_of_unit_vectors() -> None:
    best = neighbors(ROYAL, [Term(1.0, "king"), Term(-1.0, "man"), Term(1.0, "woman")], 1)[0]
    king, man, woman, queen = torch.nn.functional.normalize(ROYAL.values[:4], dim=1)
    query = king - man + woman
    assert best.word == "queen"
    assert math.isclose(best.cosine, float(query @ queen / query.norm()), abs_tol=1e-6)


def test_a_piece_is_found_by_its_word() -> None:
    assert ROYAL.row_of("pear") == ROYAL.row_of("▁pear") == 5


def test_an_unknown_word_is_an_error_with_the_nearest_word() -> None:
    with pytest.raises(DataError) as caught:
        neighbors(ROYAL, [Term(1.0, "quen")])
    assert str(caught.value) == (
        "unknown word 'quen'; expected one of the 6 words with a vector\n\nhint: did you mean 'queen'?"
    )


def test_queries_are_words_and_signed_sums_of_them() -> None:
    read = [format_query(query) for query in parse_queries(["king", "-", "man", "+", "woman", "pear", "apple - man"])]
    assert read == ["king - man + woman", "pear", "apple - man"]
    assert parse_queries(["a - b"]) == [[Term(1.0, "a"), Term(-1.0, "b")]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["-", "man"], "'-' has no word before it in '- man'"),
        (["king", "-", "+", "man"], "'+' has no word before it in 'king - + man'"),
        (["king", "-"], "a word is missing at the end of 'king -'"),
        ([" "], "a word is missing at the end of ' '"),
    ],
)
def test_an_incomplete_sum_is_an_error(given: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_queries(given)
    assert caught.value.args[0] == message
