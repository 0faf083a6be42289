"""Planted defects: does each test fail if the defect that it was written for is in the code?

Old tests cannot be imported on the commit before their fix. So every defect of planted_defects.py is put back into a copy of
today's tree, as the smallest edit that does it, and only its tests run there. They must fail there, by an assertion or by the
wrong behavior itself, and pass in an unmodified copy.

    python benchmarks/planted.py               all defects; exit 1 unless every test fails where it must and passes otherwise
    python benchmarks/planted.py --only 5,13   the defects of these causes
    python benchmarks/planted.py --only bom    those whose name contains it

The table goes to stdout, and to benchmarks/results/planted.json if all defects were planted. A test is a node of pytest, or
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
from pathlib import Path
from typing import NamedTuple

from peers.machine import machine_info
from planted_defects import DEFECTS, FAULTS, Defect

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).parent / "results" / "planted.json"
TREE = ("src", "tests", "benchmarks", "recipes", "docs")
LIMIT = 180  # seconds for one test; a longer one counts as a hang
BROKEN = ("ImportError", "ModuleNotFoundError", "SyntaxError", "IndentationError", "NameError")  # the edit itself is wrong


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


def run_test(test: str, folder: Path) -> Outcome:
    """Run one test in a copy of the tree."""
    is_case = test.startswith(FAULTS)
    case = ["benchmarks/faults.py", "--only", test.removeprefix(FAULTS)]
    node = ["-m", "pytest", test, "-q", "-rfE", "--tb=no", "-p", "no:cacheprovider", "-o", "addopts=--strict-markers"]
    code, output = run([sys.executable, *(case if is_case else node)], folder)
    if code is None:
        return Outcome("hangs", f"did not finish within {LIMIT} s")
    reason = reason_of(output)
    if code == 0:
        return Outcome("passes", reason)
    failed = "WRONG" in output if is_case else re.search(r"\d+ failed", output) and not re.search(r"\d+ errors?\b", output)
    is_broken = code != 1 or not failed or any(name in reason for name in BROKEN)
    return Outcome("broken" if is_broken else "fails", reason)


def run(command: list[str], folder: Path) -> tuple[int | None, str]:
    """Exit code and output; None if it did not finish. The process and its children are ended then."""
    environment = os.environ | {"PYTHONPATH": str(folder / "src"), "OMP_NUM_THREADS": "1", "COLUMNS": "500"}
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return None, output
    return process.returncode, output


def reason_of(output: str) -> str:
    """The first failure of pytest or of faults.py, else the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    failures = [line for line in lines if line.startswith(("FAILED", "ERROR")) or "WRONG" in line]
    return (failures or lines[-1:] or ["nothing"])[0].removeprefix("FAILED ")


def row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def chosen(only: str) -> list[Defect]:
    names = [name for name in only.split(",") if name]
    return [d for d in DEFECTS if not names or any(n == str(d.cause) or (not n.isdigit() and n in str(d.cause)) for n in names)]


def main() -> int:
    parser = argparse.ArgumentParser(description="Defects planted in today's code, and the tests that must fail.")
    parser.add_argument("--only", default="", help="numbers of causes, or parts of names, separated by commas")
    only = parser.parse_args().only
    defects = chosen(only)
    rows = []
    with tempfile.TemporaryDirectory(prefix="heedful-planted-") as name:
        plain = copy_tree(ROOT, Path(name) / "plain")
        tests = dict.fromkeys(test for defect in defects for test in defect.tests)
        before = {test: run_test(test, plain) for test in tests}
        for test, outcome in before.items():
            if outcome.verdict != "passes":
                print(f"without a defect: {test} {outcome.verdict}: {outcome.text}", flush=True)
        print(row("cause", "what is planted", "test", "fails"), row(*["---"] * 4), sep="\n", flush=True)
        for defect in defects:
            folder = copy_tree(plain, Path(name) / "planted")
            plant(defect, folder)
            for test in defect.tests:
                started = time.monotonic()
                outcome = run_test(test, folder)
                fails = outcome.verdict == "fails" or (outcome.verdict == "hangs" and defect.hangs)
                rows.append(
                    {"cause": defect.cause, "planted": defect.what, "file": defect.file, "test": test, "fails": fails}
                    | {"passes_without": before[test].verdict == "passes", "verdict": outcome.verdict, "seen": outcome.text}
                    | {"seconds": round(time.monotonic() - started, 1)}
                )
                print(row(str(defect.cause), defect.what, test, "yes" if fails else outcome.verdict.upper()), flush=True)
            shutil.rmtree(folder)
    shown = sum(bool(one["fails"] and one["passes_without"]) for one in rows)
    print(f"\n{len(defects)} defects, {len(rows)} tests of them: {shown} fail with the defect and pass without it")
    if not only:
        about = {**machine_info("pytest"), "defects": len(defects), "tests": len(rows), "shown": shown}
        RESULTS.write_text(json.dumps(about | {"rows": rows}, indent=1, ensure_ascii=False) + "\n")
    return 0 if rows and shown == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
