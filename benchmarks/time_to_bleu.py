"""Time from the command to a good model: Multi30k English to German on one GPU, everything included.

    python benchmarks/time_to_bleu.py --output FILE

The time is that of the whole `heed train` command (imports, data, tokenizer, CUDA graph capture, validation); the model is then
scored on the test set. Without compilation, half the updates of the recipe suffice.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from peers.machine import machine_info

OVERRIDES = [
    "seed=1", "training.steps=1700", "training.schedule.warmup=250", "training.save_every=85", "training.validate_every=1700",
    "task.validation_sentences=200",
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="more overrides: training.steps=2200 …")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "time_to_bleu.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run, overrides = str(Path(folder) / "run"), [*OVERRIDES, *options.overrides]
        started = time.monotonic()
        subprocess.run([sys.executable, "-m", "heedful", "train", "multi30k-en-de", *overrides, "--run", run], check=True)
        seconds = time.monotonic() - started
        command = [sys.executable, "-m", "heedful", "evaluate", run, "--metrics", "bleu,chrf", "--json"]
        scores = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["scores"]
    results = {
        "recipe": "multi30k-en-de",
        "overrides": overrides,
        "scores": scores,
        "seconds": round(seconds, 1),
        **machine_info(),
    }
    options.output.write_text(json.dumps(results, indent=1) + "\n")
    print(f"{seconds:.1f} s, BLEU {scores['bleu']['value']:.2f}")


if __name__ == "__main__":
    main()
