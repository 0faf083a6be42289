"""Train recipes and their peers side by side on one machine, score each on its test set, and write a file for each.

    python benchmarks/quality.py OUTPUT --limit 560 \\
        --run "tatoeba-pt-en-1 tatoeba-pt-en seed=1" --run "tatoeba-pt-en-2 tatoeba-pt-en seed=2" \
        --peer "tatoeba-pt-en-hf tatoeba-pt-en --seconds 240"

A run is a name, a recipe and overrides; a peer is a name, a recipe and the options of peers/translation.py. All of them start
at once. Shortly before the limit, training is stopped by a signal and the models are scored as they are; at the limit the
remaining processes are killed. Each result is written to OUTPUT/NAME.json as soon as it is complete. `benchmarks/report.py`
reads such files from benchmarks/results/quality, where they are named <recipe>-<seed> and <recipe>-hf…. With --work the runs
are kept.
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

from peers.machine import machine_info

from heedful.data.pairs import pairs
from heedful.data.splits import splits_of
from heedful.evaluation.metrics import METRICS
from heedful.runs import auto
from heedful.runs.build import load_tokenizers
from heedful.runs.config import read_run
from heedful.runs.recipes import find_recipe, settings_digest

SCORING = 80  # seconds before the limit at which training must stop, so that the test set can still be translated
HERE = Path(__file__).parent
STOPPED = 75  # the exit code of training that was stopped by a signal and saved


class Failed(Exception):
    pass


class Clock(NamedTuple):
    """The deadlines of training and of everything."""

    soft: float
    hard: float


class Job(NamedTuple):
    name: str
    recipe: str
    options: list[str]


def parse_job(text: str) -> Job:
    words = shlex.split(text)
    if len(words) < 2:
        raise argparse.ArgumentTypeError(f"given {text!r}, expected a name, a recipe and options, separated by spaces")
    return Job(words[0], words[1], words[2:])


def call(arguments: Sequence[str], log: Path, clock: Clock) -> tuple[int, str]:
    """Run a Python module until it exits, is stopped by SIGTERM, or is killed; return its exit code and stdout."""
    folders = [str(HERE.parent / "src"), str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(folders), "PYTHONUNBUFFERED": "1"}
    with log.open("a") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            stdout=subprocess.PIPE, stderr=errors, env=environment, text=True, process_group=0,
        )  # fmt: skip
        for deadline, end in ((clock.soft, signal.SIGTERM), (clock.hard, signal.SIGKILL)):
            try:
                output, _ = process.communicate(timeout=max(deadline - time.monotonic(), 0.1))
                return process.returncode, output
            except subprocess.TimeoutExpired:
                if end == signal.SIGTERM:
                    process.send_signal(end)  # to the training process only; its compiler processes end with it
                else:
                    os.killpg(process.pid, end)
        process.communicate()
    raise Failed("the time limit was reached")


def ours(job: Job, work: Path, clock: Clock) -> dict[str, Any]:
    """Train, translate the test set once, and compute cased and lowercased scores."""
    run, log, translations_file = work / job.name, work / f"{job.name}.log", work / f"{job.name}.txt"
    started = time.monotonic()
    code, _ = call(["heedful", "train", job.recipe, *job.options, "--run", str(run), "--json"], log, clock)
    seconds = time.monotonic() - started
    if code not in (0, STOPPED):
        raise Failed(f"training ended with {code}")
    scoring = ["heedful", "evaluate", str(run), "--metrics", "bleu,chrf", "--output", str(translations_file), "--json"]
    code, output = call(scoring, log, Clock(clock.hard, clock.hard))
    if code:
        raise Failed(f"scoring ended with {code}")
    results = json.loads(output)
    config = read_run(run / "config.toml").config
    references = [
        pair.target for corpus in splits_of(config.data).test for pair in pairs(corpus, max_ratio=config.data.max_ratio)
    ]
    translations = translations_file.read_text(encoding="utf-8").split("\n")[:-1]
    lowered = {name: METRICS[name](translations, references, lowercase=True, bootstrap=1000) for name in results["scores"]}
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    validations = [{key: line[key] for key in ("step", "kind", "loss", "bleu")} for line in metrics if line["kind"] != "train"]
    return {
        "system": "heedful",
        "recipe": job.recipe,
        "settings": settings_digest(find_recipe(job.recipe)),
        "overrides": job.options,
        "resolved": {path: auto.value_of(config, path) for path in auto.OFF},  # what "auto" became on this machine
        "finished": validations[-1]["step"] >= config.training.steps if validations else False,
        "scores": results["scores"],
        "lowercased": {name: asdict(score) for name, score in lowered.items()},
        "loss": results["loss"],
        "valid": max(validations, key=lambda line: line["bleu"], default=None),
        "validations": validations,
        "tokens_per_second": [round(line["tokens_per_second"]) for line in metrics if line["kind"] == "train"],
        "sentences": results["sentences"],
        "tokenizer": results["tokenizer"],
        "tokenizer_sha256": load_tokenizers(run)[1].fingerprint,
        "train_seconds": round(seconds),
        "checkpoint": Path(results["checkpoint"]).name,
        "percent_of_the_chip": int(os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", 100)),  # available to this run
        **machine_info(),
    }


def peer(job: Job, work: Path, clock: Clock) -> dict[str, Any]:
    log, result_file = work / f"{job.name}.log", work / f"{job.name}.json"
    code, output = call(
        ["peers.translation", job.recipe, *job.options, "--output", str(result_file)], log, Clock(clock.hard, clock.hard)
    )
    with log.open("a") as file:
        file.write(output)
    if code:
        raise Failed(f"the peer ended with {code}")
    results: dict[str, Any] = json.loads(result_file.read_text())
    return results


SYSTEMS = {"run": ours, "peer": peer}


def measure(kind: str, job: Job, folders: tuple[Path, Path], clock: Clock) -> bool:
    """Write and print the result of one job; on failure print the error and the end of its log."""
    work, output = folders
    try:
        results = SYSTEMS[kind](job, work, clock)
    except Exception as error:
        log = work / f"{job.name}.log"
        end = log.read_text(errors="replace")[-1500:] if log.exists() else ""
        print(f"{job.name}: no result: {type(error).__name__}: {error}\n{end}", flush=True)
        return False
    (output / f"{job.name}.json").write_text(json.dumps(results, indent=1) + "\n")
    cased, lowered = results["scores"]["bleu"]["value"], results["lowercased"]["bleu"]["value"]
    valid = results["valid"]["bleu"] if results["valid"] else float("nan")
    print(
        f"{job.name}: BLEU {cased:.2f}, lower-cased {lowered:.2f}, valid {valid:.2f}, {results['train_seconds']} s", flush=True
    )
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--run", type=parse_job, action="append", default=[], metavar='"NAME RECIPE key=value …"')
    parser.add_argument("--peer", type=parse_job, action="append", default=[], metavar='"NAME RECIPE --seconds N …"')
    parser.add_argument("--also", type=shlex.split, default=[], help="overrides for every run", metavar='"key=value …"')
    parser.add_argument("--limit", type=float, default=3600, help="time limit in seconds")
    parser.add_argument("--work", type=Path, help="folder that keeps the runs")
    args = parser.parse_args(arguments)
    now = time.monotonic()
    clock = Clock(now + max(args.limit - SCORING, args.limit / 2), now + args.limit)
    runs = [job._replace(options=[*job.options, *args.also]) for job in args.run]
    jobs = [*(("run", job) for job in runs), *(("peer", job) for job in args.peer)]
    args.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as passing, ThreadPoolExecutor(max(len(jobs), 1)) as together:
        folders = (args.work or Path(passing)).resolve(), args.output
        folders[0].mkdir(parents=True, exist_ok=True)
        written = list(together.map(lambda entry: measure(entry[0], entry[1], folders, clock), jobs))
    return 0 if all(written) else 1


if __name__ == "__main__":
    sys.exit(main())
