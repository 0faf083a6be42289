"""Length penalties and invalid search options."""

from __future__ import annotations

from typing import Any

import pytest
from tiny import config_problems

from heedful.search import SearchConfig
from heedful.search.hypothesis import PENALTIES, power, wu


@pytest.mark.parametrize(("alpha", "expected"), [(0.2, 1.2011), (0.6, 1.7329), (0.0, 1.0)])
def test_wus_penalty_of_ten_tokens(alpha: float, expected: float) -> None:
    assert wu(alpha)(10) == pytest.approx(expected, abs=5e-5)


def test_with_alpha_one_the_score_is_the_mean_per_token() -> None:
    assert [power(1.0)(length) for length in (1, 2, 10)] == [1, 2, 10]


@pytest.mark.parametrize("name", PENALTIES)
def test_a_penalty_never_decreases_with_length(name: str) -> None:
    """The early stop of beam search relies on it."""
    for alpha in (0.0, 0.6, 1.0, 2.0):
        values = [PENALTIES[name](alpha)(length) for length in range(1, 300)]
        assert values == sorted(values)
        assert values[0] == 1.0


@pytest.mark.parametrize(
    ("given", "name", "sentence"),
    [
        ({"beam": 2, "n_best": 3}, "n_best", "given 3, expected at most the beam, which is 2"),
        ({"method": "greedy", "n_best": 2}, "n_best", "given 2, but greedy search returns one hypothesis"),
        ({"min_length": 9, "max_length": 8}, "min_length", "given 9, expected at most max_length, 8"),
        ({"method": "sample", "top_p": 1.5}, "top_p", "less than or equal to 1"),
        ({"method": "sample", "temperature": 1e-9}, "temperature", "expected 0 or a number from 1e-06 to 1,000"),
        ({"length_penalty": 11}, "length_penalty", "less than or equal to 10"),
        ({"method": "greedy", "beam": 7}, "beam", "no effect because search.method is 'greedy'"),
        ({"temperature": 0.5}, "temperature", "no effect because search.method is 'beam'"),
        ({"bean": 4}, "bean", "not permitted"),
        ({"method": "bean"}, "method", "'beam', 'greedy' or 'sample'"),
        ({"length_penalty": -1}, "length_penalty", "greater than or equal to 0"),
    ],
    ids=str,
)
def test_an_invalid_option_is_reported_by_name(given: dict[str, Any], name: str, sentence: str) -> None:
    problems = config_problems(SearchConfig, **given)
    assert problems.keys() == {name}
    assert sentence in problems[name]


def test_all_problems_are_reported_at_once() -> None:
    problems = config_problems(SearchConfig, min_length=9, max_length=8, n_best=5, beam=4, seed=3)
    assert problems.keys() == {"min_length", "n_best", "seed"}
