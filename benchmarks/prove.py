"""Test claims of papers on generated data.

    python benchmarks/prove.py                      every claim without a result -> benchmarks/results/claims.json
    python benchmarks/prove.py --only luong --again

One thread. Claims that do not hold are recorded, too. `python benchmarks/report.py` writes the table of docs/results.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import torch
from claims.registry import CLAIMS
from peers.machine import machine_info

RESULTS = Path(__file__).parent / "results" / "claims.json"


def try_claim(name: str, folder: Path) -> dict[str, Any]:
    claim, started = CLAIMS[name], time.process_time()
    results = claim.run(folder / name)
    seconds = round(time.process_time() - started)
    return {
        "says": claim.statement,
        "of": claim.source,
        "figures": results.figures,
        "holds": results.holds,
        "seconds": seconds,
        **machine_info(),
    }


def read_results(path: Path) -> dict[str, Any]:
    results: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(CLAIMS), help=", ".join(CLAIMS))
    parser.add_argument("--again", action="store_true", help="repeat claims that have a result")
    parser.add_argument("--work", type=Path, help="folder that keeps the runs")
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as passing:
        for name in args.only:
            if name in read_results(args.output) and not args.again:
                continue
            results = try_claim(name, args.work or Path(passing))
            figures = ", ".join(f"{what} {figure}" for what, figure in results["figures"].items())
            print(f"{name}: {'holds' if results['holds'] else 'DOES NOT HOLD'}: {figures} ({results['seconds']} s)", flush=True)
            known = read_results(args.output) | {name: results}  # read again: another process may have written to it
            args.output.write_text(json.dumps({name: known[name] for name in CLAIMS if name in known}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
