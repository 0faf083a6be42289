"""How length is judged, and what a search config refuses."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from heedful.search import SearchConfig
from heedful.search.hypothesis import PENALTIES, power, wu


@pytest.mark.parametrize(("alpha", "expected"), [(0.2, 1.2011), (0.6, 1.7329), (0.0, 1.0)])
def test_wus_penalty_of_ten_tokens(alpha: float, expected: float) -> None:
    assert wu(alpha)(10) == pytest.approx(expected, abs=5e-5)


def test_with_alpha_one_the_score_is_the_mean_of_a_token() -> None:
    assert [power(1.0)(length) for length in (1, 2, 10)] == [1, 2, 10]


@pytest.mark.parametrize("name", PENALTIES)
def test_a_penalty_never_falls_with_length(name: str) -> None:
    """The early stop of beam search relies on it."""
    for alpha in (0.0, 0.6, 1.0, 2.0):
        judged = [PENALTIES[name](alpha)(length) for length in range(1, 300)]
        assert judged == sorted(judged)
        assert judged[0] == 1.0


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"beam": 2, "n_best": 3}, ["n_best", "3", "2"]),
        ({"method": "greedy", "n_best": 2}, ["n_best", "2", "greedy"]),
        ({"min_length": 9, "max_length": 8}, ["min_length", "9", "8"]),
        ({"method": "sample", "top_p": 1.5}, ["top_p", "1.5"]),
        ({"method": "greedy", "beam": 7}, ["beam", "greedy"]),
        ({"temperature": 0.5, "top_k": 3}, ["temperature", "top_k", "beam"]),
        ({"bean": 4}, ["bean"]),
        ({"method": "bean"}, ["'beam'", "'greedy'", "'sample'"]),
        ({"length_penalty": -1}, ["length_penalty"]),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused_by_name(given: dict[str, Any], named: list[str]) -> None:
    with pytest.raises(ValidationError) as error:
        SearchConfig(**given)
    assert all(part in str(error.value) for part in named)


def test_every_problem_is_said_at_once() -> None:
    with pytest.raises(ValidationError) as error:
        SearchConfig(min_length=9, max_length=8, n_best=5, beam=4)
    assert "min_length" in str(error.value)
    assert "n_best" in str(error.value)
