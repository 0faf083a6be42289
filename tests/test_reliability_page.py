"""docs/reliability.md is what `python benchmarks/faults_page.py` writes, and the fast tests that it names exist."""

from __future__ import annotations

import json
import re
from itertools import groupby
from pathlib import Path

import faults_page
from faults_list import FAULTS

TESTS = Path(__file__).parent


def test_the_page_is_what_the_generator_writes() -> None:
    page = faults_page.reliability_page(json.loads(faults_page.RESULTS.read_text()))
    assert page == faults_page.PAGE.read_text(encoding="utf-8"), "to update it: python benchmarks/faults_page.py"
    tables = [list(lines) for is_table, lines in groupby(page.splitlines(), lambda line: line.startswith("|")) if is_table]
    assert len(tables) > 10
    for lines in tables:
        assert {line.replace("\\|", "").count(" | ") for line in lines} == {3}, lines[0]


def test_every_fault_of_the_list_has_cases_tests_or_a_reason() -> None:
    cases = json.loads(faults_page.RESULTS.read_text())["cases"]
    assert list(FAULTS) == list(range(1, 21)) and {case["number"] for case in cases} <= FAULTS.keys()
    for number, fault in FAULTS.items():
        assert fault.note or fault.tests or any(case["number"] == number for case in cases), number


def test_the_results_depend_on_no_machine() -> None:
    page = faults_page.PAGE.read_text(encoding="utf-8")
    assert "/tmp/" not in page and not re.search(r"\bprocess \d", page)


def test_the_fast_tests_of_the_page_exist() -> None:
    names = [name for fault in FAULTS.values() for name in fault.tests]
    assert len(names) > 40
    for name in names:
        file, _, test = name.partition("::")
        assert re.search(rf"^def {test}\(", (TESTS / file).read_text(), re.MULTILINE), name
