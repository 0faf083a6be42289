"""Planted defects: does each test fail if the defect that it was written for is in the code?

Old tests cannot be imported on the commit before their fix. So every defect of planted_defects.py is put back into a copy of
today's tree, as the smallest edit that does it, and only its tests run there. They must fail there, by an assertion or by the
wrong behavior itself, and pass in an unmodified copy.

    python benchmarks/planted.py               all defects; exit 1 unless every test fails where it must and passes otherwise
    python benchmarks/planted.py --only 5,13   the defects of these causes
    python benchmarks/planted.py --only bom    those whose name contains it

The table goes to stdout, and the results of these defects to benchmarks/results/planted.json. A test is a node of pytest, or
"faults: NAME", a case of faults.py.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from peers.machine import machine_info
from planted_defects import DEFECTS, FAULTS, Defect

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).parent / "results" / "planted.json"
TREE = ("src", "tests", "benchmarks", "recipes", "docs")
LIMIT, SECONDS = 300, 30  # seconds for one case or some tests, and more for each test; a longer one counts as a hang
PYTEST = ("-q", "-rfE", "--tb=no", "-p", "no:cacheprovider", "-o", "addopts=--strict-markers")
BROKEN = ("ImportError", "ModuleNotFoundError", "SyntaxError", "IndentationError", "NameError", "the case itself failed")


Row = dict[str, str | int | bool]


class Outcome(NamedTuple):
    verdict: str  # fails, passes, hangs, or broken: the test could not run
    text: str  # why it failed


def copy_tree(source: Path, folder: Path) -> Path:
    """Copy the project; times of files are kept, so that compiled files stay valid for all but the edited one."""
    for name in TREE:
        shutil.copytree(source / name, folder / name)
    for path in source.iterdir():
        if path.is_file():
            shutil.copy2(path, folder)
    return folder


def plant(defect: Defect, folder: Path) -> None:
    path = folder / defect.file
    text = path.read_text()
    assert text.count(defect.text) == 1, f"{defect.file} has {text.count(defect.text)} times: {defect.text!r}; expected once"
    path.write_text(text.replace(defect.text, defect.replacement))


def run_tests(tests: Sequence[str], folder: Path) -> dict[str, Outcome]:
    """Run some tests in a copy of the tree: all nodes of pytest in one process, each case of faults.py in its own."""
    nodes = [test for test in dict.fromkeys(tests) if not test.startswith(FAULTS)]
    code, output = run(lambda: pytest.main([*PYTEST, *nodes]), folder, LIMIT + SECONDS * len(nodes)) if nodes else (0, "")
    outcomes = {node: outcome_of(code, find_failure(node, output)) for node in nodes}
    for case in dict.fromkeys(test for test in tests if test not in outcomes):
        command = [sys.executable, "benchmarks/faults.py", "--only", case.removeprefix(FAULTS)]
        code, output = run(partial(subprocess.call, command), folder, LIMIT)
        wrong = [line for line in output.splitlines() if line.endswith("| WRONG |")]
        outcomes[case] = outcome_of(code, wrong[0] if wrong else "")
    return outcomes


def find_failure(node: str, output: str) -> str:
    """The line of pytest's summary on the first failure of a node, which may have several parameters."""
    found = re.search(rf"^(?:FAILED|ERROR) {re.escape(node)}(?:$|[\[ ].*)", output, re.MULTILINE)
    return found[0] if found else ""


def outcome_of(code: int | None, failure: str) -> Outcome:
    """code: the exit code, None if it did not finish; failure: why this test failed, if it did."""
    if code is None:
        return Outcome("hangs", "did not finish")
    if code not in (0, 1) or failure.startswith("ERROR") or any(name in failure for name in BROKEN):
        return Outcome("broken", failure or f"exit code {code}")
    without_paths = re.sub(r"(?<![\w.])(?:/[\w.-]+)+/", "…/", failure.removeprefix("FAILED "))
    return Outcome("fails", without_paths) if failure else Outcome("passes", "")


def run(work: Callable[[], int], folder: Path, limit: float) -> tuple[int | None, str]:
    """Exit code and output of work() in a forked process in this folder; None if it did not finish, then it is killed.

    Forked, because the large libraries are imported already: otherwise importing them would take half of the time."""
    with tempfile.TemporaryFile("w+") as file:
        process = os.fork()
        if process == 0:
            os.setsid()
            for stream in (1, 2):
                os.dup2(file.fileno(), stream)
            os.chdir(folder)
            sys.path[0] = str(folder / "src")  # in the place of the folder of this program
            os.environ |= {"PYTHONPATH": str(folder / "src"), "OMP_NUM_THREADS": "1", "COLUMNS": "500"}
            code = work()
            sys.stdout.flush()
            os._exit(code)
        end = time.monotonic() + limit
        while not (ended := os.waitpid(process, os.WNOHANG))[0] and time.monotonic() < end:
            time.sleep(0.05)
        if not ended[0]:
            os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
        file.seek(0)
        return os.waitstatus_to_exitcode(ended[1]) if ended[0] else None, file.read()


def row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def chosen(only: str) -> list[Defect]:
    names = [name for name in only.split(",") if name]
    return [d for d in DEFECTS if not names or any(n == str(d.cause) or (not n.isdigit() and n in str(d.cause)) for n in names)]


def store(rows: list[Row]) -> None:
    """Write the results; those of defects that were not planted this time are kept."""
    stored = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    by_test = {(one["planted"], one["test"]): one for one in [*stored, *rows]}
    ordered = [by_test[key] for defect in DEFECTS for test in defect.tests if (key := (defect.what, test)) in by_test]
    about = {**machine_info("pytest"), "defects": len(DEFECTS), "tests": len(ordered), "shown": sum(map(is_shown, ordered))}
    RESULTS.write_text(json.dumps(about | {"rows": ordered}, indent=1, ensure_ascii=False) + "\n")


def is_shown(one: Row) -> bool:
    return bool(one["fails"] and one["passes_without"])


def main() -> int:
    parser = argparse.ArgumentParser(description="Defects planted in today's code, and the tests that must fail.")
    parser.add_argument("--only", default="", help="numbers of causes, or parts of names, separated by commas")
    defects = chosen(parser.parse_args().only)
    rows: list[Row] = []
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in background jobs, and tests send it
    with tempfile.TemporaryDirectory(prefix="heedful-planted-") as name:
        plain = copy_tree(ROOT, Path(name) / "plain")
        before = run_tests([test for defect in defects for test in defect.tests], plain)
        for test, outcome in before.items():
            if outcome.verdict != "passes":
                print(f"without a defect: {test} {outcome.verdict}: {outcome.text}", flush=True)
        print(row("cause", "what is planted", "test", "fails"), row(*["---"] * 4), sep="\n", flush=True)
        for defect in defects:
            folder = copy_tree(plain, Path(name) / "planted")
            plant(defect, folder)
            for test, outcome in run_tests(defect.tests, folder).items():
                fails = outcome.verdict == "fails"
                about: Row = {"cause": defect.cause, "planted": defect.what, "file": defect.file, "test": test, "fails": fails}
                about |= {"passes_without": before[test].verdict == "passes", "verdict": outcome.verdict, "seen": outcome.text}
                rows.append(about | {"date": date.today().isoformat()})
                print(row(str(defect.cause), defect.what, test, "yes" if fails else outcome.verdict.upper()), flush=True)
            store(rows)
            shutil.rmtree(folder)
    shown = sum(map(is_shown, rows))
    print(f"\n{len(defects)} defects, {len(rows)} tests of them: {shown} fail with the defect and pass without it")
    return 0 if rows and shown == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
