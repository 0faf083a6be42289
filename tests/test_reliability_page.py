"""docs/reliability.md is what `python benchmarks/faults_page.py` writes, and the fast tests that it names exist."""

from __future__ import annotations

import json
import re
from itertools import groupby
from pathlib import Path

import faults
import faults_page
import pytest
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


def test_the_stored_results_are_those_of_cases_of_the_program() -> None:
    stored = [(case["number"], case["case"]) for case in json.loads(faults_page.RESULTS.read_text())["cases"]]
    known = [(case.number, case.name) for case in faults.CASES]
    assert len(known) > 200 and len({*known}) == len(known) and len({*stored}) == len(stored) and {*stored} <= {*known}


def test_chosen_cases_are_stored_with_the_results_of_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "RESULTS", tmp_path / "faults.json")
    monkeypatch.setattr(faults, "write_page", bool)
    row = {"expected": "exit 4", "verdict": "right", "seen": "exit 4", "seconds": 1.0, "date": "2026-01-01"}
    rows = [row | {"number": case.number, "case": case.name} for case in faults.CASES]
    faults.store([*rows, row | {"number": 1, "case": "a case that is no more"}])
    faults.store([*faults.results_of_others([3]), rows[3] | {"verdict": "WRONG", "date": "2026-02-01"}])
    stored = json.loads((tmp_path / "faults.json").read_text())
    assert [one["case"] for one in stored["cases"] if one["date"] == "2026-02-01"] == [faults.CASES[3].name]
    assert (stored["oldest"], stored["date"]) == ("2026-01-01", "2026-02-01")
    assert stored["counts"] == {"right": len(rows) - 1, "WRONG": 1, "skipped": 0}


def test_the_results_depend_on_no_machine() -> None:
    page = faults_page.PAGE.read_text(encoding="utf-8")
    assert "/tmp/" not in page and not re.search(r"\bprocess \d", page)


def test_the_fast_tests_of_the_page_exist() -> None:
    names = [name for fault in FAULTS.values() for name in fault.tests]
    assert len(names) > 40
    for name in names:
        file, _, test = name.partition("::")
        assert re.search(rf"^def {test}\(", (TESTS / file).read_text(), re.MULTILINE), name
