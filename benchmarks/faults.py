"""Faults injected into whole commands: each case in its own folder, expected and actual outcome.

    python benchmarks/faults.py                     all cases; exit 1 if any fails
    python benchmarks/faults.py --only SIGTERM NaN  cases whose name contains one of them
    python benchmarks/faults.py --only NaN --merge  and store them with the results of the other cases
    python benchmarks/faults.py --jobs 4            four cases at a time (default: one for each core)

The table goes to stdout; without --only, or with --merge, also to benchmarks/results/faults.json and docs/reliability.md
(faults_page.py), after every case, so that a run that is stopped has its results so far. Each case has the date of its outcome.
Cases that mount a file system need root; without it they are skipped. The list of faults: faults_list.py.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import date
from typing import Any

import faults_data
import faults_disk
import faults_exchange
import faults_files
import faults_hostile
import faults_numbers
import faults_ranks
import faults_resume
import faults_saving
import faults_server
import faults_server_tasks
import faults_signals
import faults_streams
import faults_tasks
import faults_versions
from faults_page import RESULTS, row
from faults_page import main as write_page
from faults_workshop import Case, Hang, new_sandbox, preload, trained_run

GROUPS = (
    faults_tasks,
    faults_server_tasks,
    faults_versions,
    faults_hostile,
    faults_numbers,
    faults_files,
    faults_server,
    faults_streams,
    faults_data,
    faults_disk,
    faults_signals,
    faults_resume,
    faults_saving,
    faults_ranks,
    faults_exchange,
)
FIRST = ("random moments", "at every operation")  # they take minutes
CASES: list[Case] = sorted(
    (case for group in GROUPS for case in group.CASES), key=lambda case: not any(part in case.name for part in FIRST)
)
WIDTH = 110  # characters of the actual outcome


def run_case(at: int) -> dict[str, Any]:
    case, started = CASES[at], time.monotonic()
    if case.needs_root and os.geteuid() != 0:
        verdict, text = "skipped", "needs root, for a mount"
    else:
        try:
            with new_sandbox() as sandbox:
                outcome = case.run(sandbox)
                verdict, text = ("right" if outcome.right else "WRONG"), sandbox.plain(outcome.text)
        except Hang as error:
            verdict, text = "WRONG", str(error)
        except Exception as error:
            verdict, text = "WRONG", f"the case itself failed: {error!r}"
    seconds = round(time.monotonic() - started, 1)
    found = {"number": case.number, "case": case.name, "expected": case.expected, "verdict": verdict, "seen": text}
    return found | {"seconds": seconds, "date": date.today().isoformat()}


def run_all(chosen: list[int], jobs: int, others: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """Run cases, some at a time, and print each; in the order of the list of faults.

    others: the results of other cases, to store together with these; None: nothing is stored"""
    preload()
    for prepare in dict.fromkeys(CASES[at].prepare or trained_run for at in chosen):
        prepare()  # for all processes
    rows: dict[int, dict[str, Any]] = {}
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("fork"), max_tasks_per_child=None) as pool:
        running = {pool.submit(run_case, at): at for at in chosen}
        for done in as_completed(running):
            found = done.result()
            rows[running[done]] = found
            if others is not None:
                store([*others, *rows.values()])
            print(row(str(found["number"]), found["case"], found["seen"][:WIDTH], found["verdict"]), flush=True)
    return list(rows.values())


def count(rows: list[dict[str, Any]]) -> dict[str, int]:
    return {verdict: sum(one["verdict"] == verdict for one in rows) for verdict in ("right", "WRONG", "skipped")}


def results_of_others(chosen: list[int]) -> list[dict[str, Any]]:
    """The stored results of all cases but these; of cases that are no more, none."""
    kept = {(case.number, case.name) for at, case in enumerate(CASES) if at not in chosen}
    stored = json.loads(RESULTS.read_text())["cases"] if kept else []
    return [one for one in stored if (one["number"], one["case"]) in kept]


def store(rows: list[dict[str, Any]]) -> None:
    """Write the results so far, in the order of the list of faults, and the page."""
    ordered = sorted(rows, key=lambda one: (one["number"], one["case"]))
    dates = {"date": max(one["date"] for one in rows), "oldest": min(one["date"] for one in rows)}
    about = dates | {"python": platform.python_version(), "cases_of_the_program": len(CASES)}
    RESULTS.write_text(json.dumps(about | {"counts": count(rows), "cases": ordered}, indent=1, ensure_ascii=False) + "\n")
    write_page()


def main() -> int:
    parser = argparse.ArgumentParser(description="Faults: expected and actual outcome.")
    parser.add_argument("--only", nargs="+", default=[""], help="cases whose name contains one of these")
    parser.add_argument("--merge", action="store_true", help="with --only: store the results, and keep those of other cases")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="cases at a time")
    options = parser.parse_args()
    chosen = [at for at, case in enumerate(CASES) if any(part in case.name for part in options.only)]
    others = results_of_others(chosen) if options.merge or len(chosen) == len(CASES) else None
    print(row("", "case", "actual", ""), row(*["---"] * 4), sep="\n", flush=True)
    rows = run_all(chosen, options.jobs, others)
    counts = count(rows)
    print(f"\n{len(rows)} cases: {', '.join(f'{count} {verdict}' for verdict, count in counts.items() if count)}")
    return 1 if counts["WRONG"] or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
