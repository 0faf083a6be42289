"""Numbered sets: permutations, and a stream that yields every item once."""

from __future__ import annotations

from itertools import pairwise

import pytest

from heedful.data.grammar.clauses import Clause, always_overt, lexical
from heedful.data.grammar.corpus import source_text, stream
from heedful.data.grammar.lexicon import NAMES, VERBS
from heedful.data.grammar.nouns import name_phrase
from heedful.data.grammar.participants import ALL_MOODS
from heedful.data.grammar.spaces import Family, Space, one_of, shuffled


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000, 4097])
@pytest.mark.parametrize("key", [0, 1, 2**64 - 1, 0x1234567890ABCDEF])
def test_shuffled_is_a_permutation(size: int, key: int) -> None:
    assert sorted(shuffled(index, size, key) for index in range(size)) == list(range(size))


def test_shuffled_scatters_its_digits() -> None:
    size, radix = 10**6, 10
    digits = [shuffled(index, size, 99) % radix for index in range(5000)]
    pairs = set(pairwise(digits))
    assert all(350 < digits.count(digit) < 650 for digit in range(radix))
    assert len(pairs) == radix**2


def test_a_space_numbers_every_combination_once() -> None:
    space: Space[str] = Space(lambda a, b, c: a + b + c, "xy", "123", "+-")
    assert space.size == 12
    assert len({space.at(index) for index in range(12)}) == 12


def test_the_stream_visits_every_sentence_once_and_ends() -> None:
    subjects = one_of([always_overt(name_phrase(name), 2, name.gender) for name in NAMES])
    families = [
        Family(weight, lexical, (subjects, ALL_MOODS, one_of([VERBS[verb]])))
        for weight, verb in ((1.0, "sleep"), (50.0, "dance"), (0.1, "go"))
    ]
    clauses: list[Clause] = list(stream(families, seed=5))
    assert len(clauses) == 3 * len(NAMES) * ALL_MOODS.size
    assert len({source_text(clause) for clause in clauses}) == len(clauses)
