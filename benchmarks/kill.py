"""Kill a training run with SIGKILL at random moments, restart it each time, and compare its final weights, bit for bit,
with those of a run that was never stopped.

    python benchmarks/kill.py --kills 20
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import random
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

RECIPE = """
[data]
train = {{ tsv = "{data}" }}
valid = {{ tsv = "{data}" }}
batch_tokens = 512

[tokenizer]
kind = "words"
min_frequency = 1

[model]
dim = 32
layers = 2
heads = 2
feed_forward = 64

[task]
validation_sentences = 8

[search]
max_extra = 5

[training]
steps = {steps}
save_every = {save_every}
validate_every = {validate_every}
report_every = 10
average = "ema"
threads = 1

[training.schedule]
warmup = 50
"""
TIMES = ("tokens_per_second", "seconds", "time")  # keys of metrics.jsonl that differ between runs
VOCABULARY = [f"w{i}" for i in range(30)]


def write_recipe(folder: Path, *, steps: int, save_every: int, validate_every: int) -> Path:
    """A reversing task of a few hundred pairs: small, but with everything a real run has."""
    draw = random.Random(1)
    sentences = [[draw.choice(VOCABULARY) for _ in range(draw.randint(2, 9))] for _ in range(400)]
    data = folder / "pairs.tsv"
    data.write_text("".join(f"{' '.join(s)}\t{' '.join(reversed(s))}\n" for s in sentences))
    recipe = folder / "recipe.toml"
    recipe.write_text(RECIPE.format(data=data, steps=steps, save_every=save_every, validate_every=validate_every))
    return recipe


def start(recipe: Path, run: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "heedful", "train", str(recipe), "--run", str(run), "--device", "cpu"]
    with run.with_suffix(".log").open("ab") as log:
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)


def finish(recipe: Path, run: Path) -> None:
    code = start(recipe, run).wait()
    assert code == 0, run.with_suffix(".log").read_text()


def fingerprint(run: Path, step: int) -> dict[str, str]:
    """SHA-256 of every tensor file of the last checkpoint, and of the metrics without times."""
    files = sorted((run / "checkpoints" / f"step-{step}").glob("*.safetensors"))
    assert len(files) == 3, f"expected model, optimizer and average, found {files}"
    results = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    timeless = [{key: value for key, value in line.items() if key not in TIMES} for line in lines]
    return results | {"metrics.jsonl": hashlib.sha256(json.dumps(timeless).encode()).hexdigest()}


def killed_run(recipe: Path, run: Path, kills: int, draw: random.Random, longest: float) -> list[float]:
    """Kill the run `kills` times, each after a random number of seconds, then let it finish."""
    moments: list[float] = []
    while len(moments) < kills:
        process = start(recipe, run)
        moment = draw.uniform(0.0, longest)
        try:
            process.wait(timeout=moment)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            moments.append(moment)
        else:
            break  # it finished before it could be killed again
    finish(recipe, run)
    return moments


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "kill.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recipe = write_recipe(folder, steps=options.steps, save_every=10, validate_every=50)
        started = time.monotonic()
        finish(recipe, folder / "whole")
        seconds = time.monotonic() - started
        whole = fingerprint(folder / "whole", options.steps)
        identical = dict.fromkeys(whole, True)
        draw, runs = random.Random(options.seed), 0
        moments: list[float] = []
        while len(moments) < options.kills:  # if a run finishes early, another one follows
            runs += 1
            run = folder / f"killed-{runs}"
            moments += killed_run(recipe, run, options.kills - len(moments), draw, longest=seconds * 0.15)
            killed = fingerprint(run, options.steps)
            identical = {file: same and whole[file] == killed[file] for file, same in identical.items()}
    result = {
        "kills": len(moments),
        "moments": [round(moment, 2) for moment in moments],
        "runs": runs,
        "identical": identical,
        "seconds_uninterrupted": round(seconds, 1),
        "steps": options.steps,
        "machine": platform.processor() or platform.machine(),
        "date": date.today().isoformat(),
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{len(moments)} kills; identical: {', '.join(f'{file} {same}' for file, same in identical.items())}")
    sys.exit(0 if all(identical.values()) else 1)


if __name__ == "__main__":
    main()
