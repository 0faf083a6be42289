"""The list of planted defects is complete and fits today's source; `python benchmarks/planted.py` plants them, in minutes."""

from __future__ import annotations

from pathlib import Path

import faults
import pytest
from planted import Outcome, find_failure, outcome_of
from planted_defects import CAUSES, DEFECTS, FAULTS, Defect

pytestmark = pytest.mark.benchmark

ROOT = Path(__file__).parents[1]


def test_every_cause_of_the_trials_has_a_defect() -> None:
    assert {defect.cause for defect in CAUSES} == set(range(1, 35))


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: f"{defect.cause}, {defect.what}")
def test_the_text_of_a_defect_occurs_once_and_the_edited_file_compiles(defect: Defect) -> None:
    text = (ROOT / defect.file).read_text()
    assert text.count(defect.text) == 1
    planted = text.replace(defect.text, defect.replacement)
    assert planted != text
    if defect.file.endswith(".py"):
        compile(planted, defect.file, "exec")


def test_every_test_of_a_defect_exists() -> None:
    cases = {case.name for group in faults.GROUPS for case in group.CASES}
    for test in (test for defect in DEFECTS for test in defect.tests):
        file, _, name = test.partition("::")
        if test.startswith(FAULTS):
            assert test.removeprefix(FAULTS) in cases
        else:
            assert f"def {name.partition('[')[0]}(" in (ROOT / file).read_text(), test
    assert all(defect.tests for defect in DEFECTS)


def test_only_a_failure_of_the_test_itself_counts() -> None:
    output = (
        "FAILED tests/a.py::test_one[x y] - assert 1 == 2\n"
        "ERROR tests/a.py::test_two - RuntimeError\n"
        "FAILED tests/a.py::test_three - NameError: name 'x' is not defined\n"
    )
    assert outcome_of(1, find_failure("tests/a.py::test_one", output)) == ("fails", "tests/a.py::test_one[x y] - assert 1 == 2")
    assert outcome_of(1, find_failure("tests/a.py::test_one[x y]", output)).verdict == "fails"
    assert outcome_of(1, find_failure("tests/a.py::test_on", output)) == Outcome("passes", "")
    for name in ("test_two", "test_three"):
        assert outcome_of(1, find_failure(f"tests/a.py::{name}", output)).verdict == "broken"
    assert outcome_of(4, "").verdict == outcome_of(-7, "").verdict == "broken"
    assert outcome_of(None, "").verdict == "hangs"
