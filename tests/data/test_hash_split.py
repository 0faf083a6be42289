"""Splits by a hash: a pure function of the texts, whose near-duplicates are in one part."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data import hash_split
from heedful.data.fractions import PARTS
from heedful.data.hash_split import FREQUENT, group_leaders, normalize, split_by_hash

WORDS = [f"w{at}" for at in range(12)]  # few, so that texts share 4-grams
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=14).map(" ".join), max_size=30)
HALF = (0.5, 0.25, 0.25)


def four_grams(text: str) -> set[tuple[str, ...]]:
    words = text.split()
    return {tuple(words[at : at + 4]) for at in range(len(words) - 3)}


def groups_by_definition(texts: list[str]) -> list[set[int]]:
    """The groups, by comparing all pairs."""
    groups = [{at} for at in range(len(texts))]
    for a in range(len(texts)):
        for b in range(a):
            left, right = four_grams(texts[a]), four_grams(texts[b])
            fewer = min(len(left), len(right))
            if texts[a] == texts[b] or (fewer and len(left & right) >= fewer / 2):
                joined = next(group for group in groups if a in group) | next(group for group in groups if b in group)
                groups = [group for group in groups if not group & joined] + [joined]
    return groups


@given(TEXTS, st.randoms(use_true_random=False))
def test_the_part_of_a_text_does_not_depend_on_the_order(texts: list[str], generator: random.Random) -> None:
    parts = split_by_hash(texts, HALF)
    assert parts == split_by_hash(texts, HALF)
    order = generator.sample(range(len(texts)), len(texts))
    assert split_by_hash([texts[at] for at in order], HALF) == [parts[at] for at in order]


@given(TEXTS)
def test_groups_are_those_of_comparing_all_pairs_and_stay_together(texts: list[str]) -> None:
    leaders, parts = group_leaders(texts), split_by_hash(texts, HALF)
    groups = groups_by_definition(texts)
    assert sorted(map(sorted, groups)) == sorted(
        [at for at, leader in enumerate(leaders) if leader == one] for one in set(leaders)
    )
    for group in groups:
        assert len({parts[at] for at in group}) == 1
        assert {leaders[at] for at in group} == {min(texts[at] for at in group)}


@given(TEXTS, st.lists(st.integers().map(lambda number: f"other{number} other{number}"), max_size=5))
def test_texts_of_other_groups_change_nothing(texts: list[str], others: list[str]) -> None:
    assert split_by_hash([*others, *texts], HALF)[len(others) :] == split_by_hash(texts, HALF)


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.tuples(st.integers(1, 8), st.integers(0, 8), st.integers(0, 8)))
def test_the_parts_have_the_given_fractions(seed: int, weights: tuple[int, int, int]) -> None:
    fractions = (weights[0] / sum(weights), weights[1] / sum(weights), weights[2] / sum(weights))
    counts = Counter(split_by_hash([f"text {seed} {at}" for at in range(2000)], fractions))
    for part, fraction in zip(PARTS, fractions, strict=True):
        deviation = (2000 * fraction * (1 - fraction)) ** 0.5
        assert abs(counts[part] - 2000 * fraction) <= 5 * deviation


def test_case_and_punctuation_do_not_matter_but_marks_of_letters_do() -> None:
    assert normalize("Don\u2019t  PANIC, (ever)!") == "dont panic ever"
    assert normalize("\u0915\u093f") == "\u0915\u093f"
    assert normalize(":-)") == ":-)"
    assert normalize("我们说中文") == "我 们 说 中 文"
    texts = ["A fine film.", "a fine, FILM", "a fine book"]
    leaders = group_leaders(texts)
    assert leaders[0] == leaders[1] != leaders[2]


def test_a_phrase_in_very_many_texts_joins_none_of_them() -> None:
    """Every 4-gram that is in all texts is ignored, and so is its share."""
    texts = [f"one of the best a{at} b{at} c{at}" for at in range(FREQUENT + 1)]
    assert len(set(group_leaders([*texts, "one of the best"]))) == FREQUENT + 2
    assert len(set(group_leaders([*texts[:5], "one of the best"]))) == 1


def test_pairs_are_counted_in_portions_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = random.Random(1)
    texts = [" ".join(generator.choices(WORDS[:4], k=8)) for _ in range(40)]
    whole = group_leaders(texts)
    assert 1 < len(set(whole)) < len(set(texts))
    monkeypatch.setattr(hash_split, "PAIRS", 3)
    assert group_leaders(texts) == whole
