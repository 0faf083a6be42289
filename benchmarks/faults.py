"""Faults that need a second process, a signal, a mount or minutes: each case in its own folder, expected and actual outcome.

    python benchmarks/faults.py                 all cases; exit 1 if any fails
    python benchmarks/faults.py --only SIGTERM  cases whose name contains it

The table goes to stdout, and to benchmarks/results/faults.json if all cases ran. Cases that mount a file system need root;
without it they are skipped.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from datetime import date
from pathlib import Path

import faults_data
import faults_disk
import faults_hostile
import faults_signals
import faults_streams
from faults_workshop import Case, Hang, new_sandbox

RESULTS = Path(__file__).parent / "results" / "faults.json"
GROUPS = (faults_data, faults_disk, faults_signals, faults_streams, faults_hostile)
WIDTH = 110  # characters of the actual outcome


def run_case(case: Case) -> dict[str, str | float]:
    started = time.monotonic()
    if case.needs_root and os.geteuid() != 0:
        verdict, text = "skipped", "needs root, for a mount"
    else:
        try:
            with new_sandbox() as sandbox:
                outcome = case.run(sandbox)
            verdict, text = ("right" if outcome.right else "WRONG"), outcome.text
        except Hang as error:
            verdict, text = "WRONG", str(error)
        except Exception as error:
            verdict, text = "WRONG", f"the case itself failed: {error!r}"
    seconds = round(time.monotonic() - started, 1)
    return {"case": case.name, "expected": case.expected, "verdict": verdict, "seen": text, "seconds": seconds}


def row(*cells: str) -> str:
    escaped = [cell.replace("|", "\\|") for cell in cells]
    return f"| {' | '.join(escaped)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description="Faults: expected and actual outcome.")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    only = parser.parse_args().only
    cases = [case for group in GROUPS for case in group.CASES if only in case.name]
    print(row("case", "expected", "actual", ""), row(*["---"] * 4), sep="\n", flush=True)
    rows = []
    for case in cases:
        results = run_case(case)
        rows.append(results)
        print(row(case.name, case.expected, str(results["seen"])[:WIDTH], str(results["verdict"])), flush=True)
    counts = {verdict: sum(one["verdict"] == verdict for one in rows) for verdict in ("right", "WRONG", "skipped")}
    print(f"\n{len(rows)} cases: {', '.join(f'{count} {verdict}' for verdict, count in counts.items() if count)}")
    if not only:
        about = {"date": date.today().isoformat(), "python": platform.python_version(), "counts": counts}
        RESULTS.write_text(json.dumps(about | {"cases": rows}, indent=1, ensure_ascii=False) + "\n")
    return 1 if counts["WRONG"] or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
