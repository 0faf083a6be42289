"""Train recipes and their peers side by side on one machine, score each on its test set, and write a file for each.

    python benchmarks/quality.py OUTPUT --limit 560 \\
        --also "training.precision=bf16 training.compile=true data.pad_to_multiple_of=12" \
        --run "tatoeba-pt-en-1 tatoeba-pt-en seed=1" --run "tatoeba-pt-en-2 tatoeba-pt-en seed=2" \
        --peer "tatoeba-pt-en-hf tatoeba-pt-en --seconds 240"

A run is a name, a recipe and what to override; a peer is a name, a recipe and the options of peers/translation.py. All of them
begin at once. Shortly before the limit what still trains is told to stop and is scored as it is; at the limit whatever is left
is ended. A result is written as soon as it is there, to OUTPUT/NAME.json. `benchmarks/report.py` reads such files from
benchmarks/results/quality, where they are called <recipe>-<seed> and <recipe>-hf…. With --work the runs are kept.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from peers.machine import about_here

from heedful.build import load_tokenizers
from heedful.config import read_run
from heedful.data.pairs import pairs
from heedful.data.splits import splits_of
from heedful.evaluation.metrics import METRICS
from heedful.recipe_files import find_recipe, settings_digest

SCORING = 80  # seconds before the limit at which training must stop, so that the test set can still be translated
HERE = Path(__file__).parent
STOPPED = 75  # the exit code of a training that was asked to stop and saved


class Failed(Exception):
    pass


class Clock(NamedTuple):
    """When training must stop and when everything must."""

    soft: float
    hard: float


class Job(NamedTuple):
    name: str
    recipe: str
    options: list[str]


def job(text: str) -> Job:
    words = shlex.split(text)
    if len(words) < 2:
        raise argparse.ArgumentTypeError(f"given {text!r}, expected a name, a recipe and options, apart by spaces")
    return Job(words[0], words[1], words[2:])


def call(arguments: Sequence[str], log: Path, clock: Clock) -> tuple[int, str]:
    """Run a module of Python until it ends, is asked to stop, or is killed: its exit code and what it put out."""
    folders = [str(HERE.parent / "src"), str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    surroundings = os.environ | {"PYTHONPATH": os.pathsep.join(folders), "PYTHONUNBUFFERED": "1"}
    with log.open("a") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            stdout=subprocess.PIPE, stderr=errors, env=surroundings, text=True, process_group=0,
        )  # fmt: skip
        for deadline, end in ((clock.soft, signal.SIGTERM), (clock.hard, signal.SIGKILL)):
            try:
                said, _ = process.communicate(timeout=max(deadline - time.monotonic(), 0.1))
                return process.returncode, said
            except subprocess.TimeoutExpired:
                if end == signal.SIGTERM:
                    process.send_signal(end)  # to the training alone; those who compile for it go when it goes
                else:
                    os.killpg(process.pid, end)
        process.communicate()
    raise Failed("the time was over")


def ours(one: Job, work: Path, clock: Clock) -> dict[str, Any]:
    """Train, translate the test set once, and score that with and without case."""
    run, log, said = work / one.name, work / f"{one.name}.log", work / f"{one.name}.txt"
    began = time.monotonic()
    code, _ = call(["heedful", "train", one.recipe, *one.options, "--run", str(run), "--json"], log, clock)
    seconds = time.monotonic() - began
    if code not in (0, STOPPED):
        raise Failed(f"training ended with {code}")
    scoring = ["heedful", "evaluate", str(run), "--metrics", "bleu,chrf", "--output", str(said), "--json"]
    code, told = call(scoring, log, Clock(clock.hard, clock.hard))
    if code:
        raise Failed(f"scoring ended with {code}")
    found = json.loads(told)
    config = read_run(run / "config.toml").config
    references = [
        pair.target for corpus in splits_of(config.data).test for pair in pairs(corpus, max_ratio=config.data.max_ratio)
    ]
    translations = said.read_text(encoding="utf-8").split("\n")[:-1]
    lowered = {name: METRICS[name](translations, references, lowercase=True, bootstrap=1000) for name in found["scores"]}
    told_of = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    judged = [{key: line[key] for key in ("step", "kind", "loss", "bleu")} for line in told_of if line["kind"] != "train"]
    return {
        "system": "heedful",
        "recipe": one.recipe,
        "settings": settings_digest(find_recipe(one.recipe)),
        "overrides": one.options,
        "finished": judged[-1]["step"] >= config.training.steps if judged else False,
        "scores": found["scores"],
        "lowercased": {name: asdict(score) for name, score in lowered.items()},
        "loss": found["loss"],
        "valid": max(judged, key=lambda line: line["bleu"], default=None),
        "validations": judged,
        "tokens_per_second": [round(line["tokens_per_second"]) for line in told_of if line["kind"] == "train"],
        "sentences": found["sentences"],
        "tokenizer": found["tokenizer"],
        "tokenizer_sha256": load_tokenizers(run)[1].fingerprint,
        "train_seconds": round(seconds),
        "checkpoint": Path(found["checkpoint"]).name,
        "percent_of_the_chip": int(os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", 100)),  # that it might use at a time
        **about_here(),
    }


def peer(one: Job, work: Path, clock: Clock) -> dict[str, Any]:
    log, output = work / f"{one.name}.log", work / f"{one.name}.json"
    code, told = call(
        ["peers.translation", one.recipe, *one.options, "--output", str(output)], log, Clock(clock.hard, clock.hard)
    )
    with log.open("a") as file:
        file.write(told)
    if code:
        raise Failed(f"the peer ended with {code}")
    found: dict[str, Any] = json.loads(output.read_text())
    return found


SYSTEMS = {"run": ours, "peer": peer}


def measure(kind: str, one: Job, folders: tuple[Path, Path], clock: Clock) -> bool:
    """Write what one job gave and say it in a line; or say why there is nothing, with the end of its log."""
    work, output = folders
    try:
        found = SYSTEMS[kind](one, work, clock)
    except Exception as error:
        log = work / f"{one.name}.log"
        end = log.read_text(errors="replace")[-1500:] if log.exists() else ""
        print(f"{one.name}: no result: {type(error).__name__}: {error}\n{end}", flush=True)
        return False
    (output / f"{one.name}.json").write_text(json.dumps(found, indent=1) + "\n")
    cased, lowered = found["scores"]["bleu"]["value"], found["lowercased"]["bleu"]["value"]
    valid = found["valid"]["bleu"] if found["valid"] else float("nan")
    print(f"{one.name}: BLEU {cased:.2f}, lower-cased {lowered:.2f}, valid {valid:.2f}, {found['train_seconds']} s", flush=True)
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--run", type=job, action="append", default=[], metavar='"NAME RECIPE key=value …"')
    parser.add_argument("--peer", type=job, action="append", default=[], metavar='"NAME RECIPE --seconds N …"')
    parser.add_argument("--also", type=shlex.split, default=[], help="what to override in every run", metavar='"key=value …"')
    parser.add_argument("--limit", type=float, default=3600, help="seconds for everything")
    parser.add_argument("--work", type=Path, help="where to keep the runs")
    given = parser.parse_args(arguments)
    now = time.monotonic()
    clock = Clock(now + max(given.limit - SCORING, given.limit / 2), now + given.limit)
    runs = [one._replace(options=[*one.options, *given.also]) for one in given.run]
    jobs = [*(("run", one) for one in runs), *(("peer", one) for one in given.peer)]
    given.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as passing, ThreadPoolExecutor(max(len(jobs), 1)) as together:
        folders = (given.work or Path(passing)).resolve(), given.output
        folders[0].mkdir(parents=True, exist_ok=True)
        written = list(together.map(lambda entry: measure(entry[0], entry[1], folders, clock), jobs))
    return 0 if all(written) else 1


if __name__ == "__main__":
    sys.exit(main())
