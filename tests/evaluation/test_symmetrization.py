"""Symmetrization: a worked example, and the inclusion order of the four methods."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from heedful.evaluation.symmetrization import SYMMETRIZATIONS
from heedful.evaluation.word_alignment import Link

FORWARD = {(0, 0), (1, 1), (1, 2), (4, 4)}
BACKWARD = {(0, 0), (2, 2), (5, 3), (1, 1)}
LINKS = st.frozensets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12)


def test_a_worked_example() -> None:
    """From {00, 11}: 12 and 22 are adjacent and align new words; 44 and 53 are adjacent to each other only."""
    both = {name: symmetrize(FORWARD, BACKWARD) for name, symmetrize in SYMMETRIZATIONS.items()}
    assert both["intersection"] == {(0, 0), (1, 1)}
    assert both["grow-diag"] == {(0, 0), (1, 1), (1, 2), (2, 2)}
    assert both["grow-diag-final-and"] == {(0, 0), (1, 1), (1, 2), (2, 2), (4, 4), (5, 3)}
    assert both["union"] == FORWARD | BACKWARD


def test_a_link_between_words_that_are_both_aligned_is_never_added() -> None:
    square = {(0, 0), (1, 1)}
    assert SYMMETRIZATIONS["grow-diag-final-and"](square | {(0, 1)}, square) == square


@given(LINKS, LINKS)
def test_each_method_includes_the_links_of_the_stricter_one(first: frozenset[Link], second: frozenset[Link]) -> None:
    ways = [SYMMETRIZATIONS[name](first, second) for name in ("intersection", "grow-diag", "grow-diag-final-and", "union")]
    assert all(fewer <= more for fewer, more in itertools.pairwise(ways))


@given(LINKS)
def test_an_alignment_with_itself_is_itself(links: frozenset[Link]) -> None:
    assert all(symmetrize(links, links) == links for symmetrize in SYMMETRIZATIONS.values())
