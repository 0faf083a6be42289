from __future__ import annotations

import random

import numpy as np
import pytest

from heedful.data import minhash
from heedful.data.minhash import NUMBERS, near_duplicates, repeated, shingles, signatures, store_signatures


def jaccard(first: str, second: str) -> float:
    """Of the sets of 5-grams, as strings."""
    a, b = ({text[at : at + 5] for at in range(max(len(text) - 4, 1))} for text in (first, second))
    return len(a & b) / len(a | b)


def edited(text: str, edits: int, draw: random.Random) -> str:
    letters = list(text)
    for _ in range(edits):
        letters[draw.randrange(len(letters))] = draw.choice("abcdefghij")
    return "".join(letters)


def some_texts(count: int, draw: random.Random) -> list[str]:
    return ["".join(draw.choice("abcdefghij ") for _ in range(draw.randint(40, 120))) for _ in range(count)]


def test_a_shingle_is_a_substring_of_five_characters() -> None:
    assert len(shingles("abcdefg")) == 3
    assert shingles("abcdeXabcde")[0] == shingles("abcdeXabcde")[6]
    assert len(set(shingles("größerÄ漢字かな").tolist())) == 7
    assert len(shingles("")) == len(shingles("ab")) == 1
    assert shingles("ab") != shingles("ba")


def test_the_share_of_equal_numbers_estimates_the_jaccard_similarity() -> None:
    draw = random.Random(1)
    pairs = [(text, edited(text, draw.randint(0, 12), draw)) for text in some_texts(300, draw)]
    exact = np.array([jaccard(*pair) for pair in pairs])
    estimated = (signatures([a for a, _ in pairs]) == signatures([b for _, b in pairs])).mean(1)
    assert exact.min() < 0.4 and exact.max() == 1.0
    error = np.sqrt(exact * (1 - exact) / NUMBERS)
    assert abs((estimated - exact).mean()) < 4 * error.mean() / np.sqrt(len(pairs))  # unbiased
    assert np.sqrt(((estimated - exact) ** 2).mean()) == pytest.approx(np.sqrt((error**2).mean()), rel=0.2)


def test_near_duplicates_are_those_of_all_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(2)
    texts = some_texts(100, draw)
    texts += [edited(text, draw.choice((0, 1, 2, 20)), draw) for text in texts]
    draw.shuffle(texts)
    similar = [[jaccard(texts[i], texts[j]) for j in range(i)] for i in range(len(texts))]
    highest = np.array([max(row, default=0.0) for row in similar])
    clear = abs(highest - 0.7) > 0.2  # beyond three standard errors
    monkeypatch.setattr(minhash, "PARTITION", 50)
    monkeypatch.setattr(minhash, "BLOCK", 70)
    found = near_duplicates(store_signatures([texts[:70], texts[70:]]), 0.7)
    assert 25 < (highest[clear] > 0.7).sum() < 200
    assert (found[clear] == (highest[clear] > 0.7)).all()


def test_a_repeated_hash_is_one_that_occurred_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minhash, "PARTITION", 64)
    monkeypatch.setattr(minhash, "BLOCK", 100)
    hashes = np.random.default_rng(0).integers(0, 200, 500).astype(np.uint64)
    seen: set[int] = set()
    expected = []
    for value in hashes.tolist():
        expected.append(value in seen)
        seen.add(value)
    assert repeated(hashes).tolist() == expected
    assert repeated(hashes[:0]).tolist() == []
