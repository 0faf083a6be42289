"""Values of command-line options that are out of range: the message has the option, the given and the expected value."""

from __future__ import annotations

from pathlib import Path

import pytest
from workshop import heed

CASES = {
    "too large": (["evaluate", "RUN", "--bootstrap", "1000001"], "--bootstrap: given '1000001', expected at most 1,000,000"),
    "too small": (["average", "RUN", "--last", "-1"], "--last: given '-1', expected at least 1"),
    "a word": (["average", "RUN", "--last", "all"], "--last: given 'all', expected an integer"),
    "thousands of digits": (
        ["average", "RUN", "--last", "9" * 5000],
        f"--last: given '{'9' * 39}, expected an integer of fewer digits",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_value_is_given_and_expected(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, message = CASES[case]
    assert heed(*(str(tmp_path) if word == "RUN" else word for word in arguments)) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}\n\nhint: see heed ")
