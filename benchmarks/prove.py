"""Try what papers claim of their systems on generated data: does it hold here?

    python benchmarks/prove.py                      every claim that has no result yet -> benchmarks/results/claims.json
    python benchmarks/prove.py --only luong --again

One thread. A claim that fails is written down as well. `python benchmarks/report.py` makes the table of docs/results.md.
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
from peers.machine import about_here

RESULTS = Path(__file__).parent / "results" / "claims.json"


def tried(name: str, folder: Path) -> dict[str, Any]:
    claim, began = CLAIMS[name], time.process_time()
    found = claim.try_it(folder / name)
    seconds = round(time.process_time() - began)
    return {
        "says": claim.says, "of": claim.of, "figures": found.figures, "holds": found.holds, "seconds": seconds, **about_here()
    }  # fmt: skip


def stored(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(CLAIMS), help=", ".join(CLAIMS))
    parser.add_argument("--again", action="store_true", help="also what has a result")
    parser.add_argument("--work", type=Path, help="where to keep the runs")
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as passing:
        for name in given.only:
            if name in stored(given.output) and not given.again:
                continue
            found = tried(name, given.work or Path(passing))
            told = ", ".join(f"{what} {figure}" for what, figure in found["figures"].items())
            print(f"{name}: {'holds' if found['holds'] else 'DOES NOT HOLD'}: {told} ({found['seconds']} s)", flush=True)
            known = stored(given.output) | {name: found}  # read again: another process may have written
            given.output.write_text(json.dumps({name: known[name] for name in CLAIMS if name in known}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
