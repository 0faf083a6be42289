"""A recipe as `heed train RECIPE` runs it, without any option but the seed: wall time of the whole command, and test scores.

    python benchmarks/no_options.py                                 -> benchmarks/results/no_options.json
    python benchmarks/no_options.py --recipe multi30k-en-de --seeds 1 2 3

The runs are one after the other, so that each has the machine alone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean
from typing import Any

from peers.machine import machine_info


def heed(*arguments: str) -> Any:
    command = [sys.executable, "-m", "heedful", *arguments, "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def measure(recipe: str, seed: int, folder: Path) -> dict[str, Any]:
    """Train with one seed, and score the run on its test data."""
    run = folder / f"seed-{seed}"
    started = time.monotonic()
    outcome = heed("train", recipe, f"seed={seed}", "--run", str(run))
    seconds = time.monotonic() - started
    evaluation = heed("evaluate", str(run))
    scores = {name: score["value"] for name, score in evaluation["scores"].items()}
    config = (run / "config.toml").read_text()
    chosen = [line for line in config.splitlines() if line.startswith(("precision", "cuda_graphs", "pad_to_multiple_of"))]
    return {"seed": seed, "seconds": round(seconds, 1), "step": outcome["step"], "scores": scores, "chosen": chosen}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="multi30k-en-de")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "no_options.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = [measure(options.recipe, seed, Path(folder)) for seed in options.seeds]
    bleu = mean(run["scores"]["bleu"] for run in runs)
    slowest = max(run["seconds"] for run in runs)
    result = machine_info() | {"recipe": options.recipe, "bleu": round(bleu, 2), "slowest_seconds": slowest, "runs": runs}
    options.output.write_text(json.dumps(result, indent=1) + "\n")
    for run in runs:
        print(f"seed {run['seed']}: {run['seconds']} s, {run['step']} steps, BLEU {run['scores']['bleu']:.2f}")
    print(f"mean BLEU {bleu:.2f}, slowest {slowest} s")


if __name__ == "__main__":
    main()
