"""docs/reliability.md: every case of faults.py, expected and seen, from benchmarks/results/faults.json.

python benchmarks/faults_page.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from faults_list import FAULTS, Fault

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "faults.json"
PAGE = ROOT / "docs" / "reliability.md"
WIDTH = 220  # characters of what was seen


def reliability_page(results: dict[str, Any]) -> str:
    counts = results["counts"]
    skipped = f", {counts['skipped']} skipped" if counts["skipped"] else ""
    done, total = len(results["cases"]), results["cases_of_the_program"]
    ran = f"{done}" if done == total else f"{done} of {total}"
    oldest = f"{results['oldest']} to " if results["oldest"] != results["date"] else ""
    sections = [section(number, fault, results["cases"]) for number, fault in FAULTS.items()]
    return (
        "# Reliability\n\nFaults are injected into whole commands, each in a folder of its own: "
        f"{ran} cases, {counts['right']} as expected, {counts['WRONG']} not{skipped} ({oldest}{results['date']}). "
        "`make faults` runs them and writes this page; cases with a full disk mount one and need root. Signals, failing disks "
        "and failing memory are injected into a child process, so the package itself has no code for it. The fast tests named "
        'under each table run in `make test`.\n\n"Identical" compares weights and optimizer state, bit for bit, with those of '
        "a run without the fault.\n\n" + "\n".join(sections)
    )


def section(number: int, fault: Fault, cases: list[dict[str, Any]]) -> str:
    rows = [
        row(case["case"], case["expected"], shorten(case["seen"]), case["verdict"])
        for case in cases
        if case["number"] == number
    ]
    table = [row("case", "expected", "seen", ""), row(*["---"] * 4), *rows] if rows else []
    tests = "\n".join(f"- `tests/{name}`" for name in fault.tests)
    parts = ["\n".join(table), fault.note, f"Fast tests:\n\n{tests}" if tests else ""]
    return f"## {number}. {fault.title}\n\n" + "".join(f"{part}\n\n" for part in parts if part).rstrip() + "\n"


def shorten(text: str) -> str:
    return text if len(text) <= WIDTH else f"{text[:WIDTH].rsplit(' ', 1)[0]} …"


def row(*cells: str) -> str:
    escaped = [" ".join(cell.split()).replace("|", "\\|").replace("<", "&lt;") for cell in cells]
    return f"| {' | '.join(escaped)} |"


def main() -> None:
    PAGE.write_text(reliability_page(json.loads(RESULTS.read_text())), encoding="utf-8")


if __name__ == "__main__":
    main()
