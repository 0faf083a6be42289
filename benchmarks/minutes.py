"""Test whether a run keeps its time limit: train the recipe `small` on 20,000 pairs of tatoeba-pt-en with
training.minutes=3, and record the duration of the whole command, including start-up, vocabulary and encoding, and the BLEU.

    HEED_DATA=/where/corpora/are python benchmarks/minutes.py
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

from peers.machine import machine_info

CORPUS, LANGUAGES = "tatoeba-pt-en", ("pt", "en")


def make_folder(corpus: Path, folder: Path, pairs: int) -> Path:
    """The first training pairs of a corpus, with its validation and test sets."""
    folder.mkdir()
    for split in ("train", "valid", "test"):
        for language in LANGUAGES:
            name = f"{split}.{language}"
            with gzip.open(corpus / f"{name}.gz", "rt", encoding="utf-8") as lines:
                (folder / name).write_text("".join(itertools.islice(lines, pairs if split == "train" else None)), "utf-8")
    return folder


def measure(data: Path, run: Path, minutes: float) -> dict[str, Any]:
    """Train, and read the results from the run folder."""
    languages = json.dumps(list(LANGUAGES))
    command = ["train", "small", f"data.folder={data}", f"data.languages={languages}", f"training.minutes={minutes:g}"]
    command.append("training.report_every=5")  # to find the peak of the learning rate
    environment = os.environ | {"HEED_CACHE": str(run.parent / "cache")}  # an empty cache
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "heedful", *command, "--run", str(run), "--device", "cpu"], env=environment, check=True
    )
    seconds = time.perf_counter() - started
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    validations = [record for record in records if record["kind"] in ("valid", "average")]
    rates = [(record["rate"], record["step"]) for record in records if record["kind"] == "train"]
    config = tomllib.loads((run / "config.toml").read_text())
    return {
        "command": f"heed {' '.join(command).replace(str(data), 'FOLDER')}",
        "minutes": minutes,
        "seconds": round(seconds, 1),
        "of_the_limit": round(seconds / (60 * minutes), 3),
        "steps": validations[-1]["step"],
        "configured_warmup": config["training"]["schedule"]["warmup"],
        "highest_rate_at_step": max(rates)[1],
        "rates": [[step, float(f"{rate:.3g}")] for rate, step in rates],
        "bleu": [[record["step"], record["kind"], round(record["bleu"], 2)] for record in validations],
        "best_bleu": round(max(record["bleu"] for record in validations), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--pairs", type=int, default=20_000)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "minutes.json")
    options = parser.parse_args()
    corpus = Path(os.environ.get("HEED_DATA", "data")) / CORPUS
    with tempfile.TemporaryDirectory() as name:
        data = make_folder(corpus, Path(name) / "data", options.pairs)
        results = measure(data, Path(name) / "run", options.minutes)
    options.output.write_text(json.dumps(machine_info() | {"pairs": options.pairs} | results, indent=1) + "\n")
    print(json.dumps({key: value for key, value in results.items() if key not in ("rates",)}, indent=1))


if __name__ == "__main__":
    main()
