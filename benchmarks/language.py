"""Train recipes of language models, of encoders and of models fine-tuned from them, score each, and write a file for each.

    python benchmarks/language.py benchmarks/results/language --work runs \
        --run "shakespeare-char shakespeare-char" --run "wikitext2 wikitext2" --run "reviews gpt1-reviews" \
        --then "sst2 sst2-gpt1 training.init=runs/reviews" \
        --then "sst2-plain sst2-gpt1 training.init=runs/reviews task.auxiliary=0" \
        --then "sst2-scratch sst2-gpt1 'training.init=\\"\\"' training.schedule.learning_rate=3e-4"

A run is a name, a recipe and overrides. Those of --run start at once, those of --then when all others are finished. Runs are
kept in --work under their names, and unfinished runs are resumed. Checkpoints are selected on validation data, and test
data, if any, is scored once.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from peers.machine import machine_info
from quality import STOPPED, Clock, Failed, Job, call, parse_job

from heedful.runs.recipes import find_recipe, settings_digest

SCORING = 30  # seconds before the limit at which training must stop


def train(job: Job, work: Path, clock: Clock) -> dict[str, Any]:
    """Train one run and return its metrics and scores."""
    run, log = work / job.name, work / f"{job.name}.log"
    started = time.monotonic()
    code, _ = call(["heedful", "train", job.recipe, *job.options, "--run", str(run), "--json"], log, clock)
    seconds = time.monotonic() - started
    if code not in (0, STOPPED):
        raise Failed(f"training ended with {code}\n{log.read_text(errors='replace')[-1500:]}")
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {
        "recipe": job.recipe,
        "settings": settings_digest(find_recipe(job.recipe)),
        "overrides": [option.replace(f"{work}/", "") for option in job.options],  # runs are identified by name
        "train_seconds": round(seconds, 1),
        "steps": metrics[-1]["step"],
        "stopped": code == STOPPED,
        "validations": [line for line in metrics if line["kind"] != "train"],
        "scores": {split: results for split in ("valid", "test") if (results := score(run, split, log, clock))},
        **machine_info(),
    }


def score(run: Path, split: str, log: Path, clock: Clock) -> dict[str, float]:
    """The metrics of `heed evaluate`; empty where a run has no test data."""
    code, output = call(["heedful", "evaluate", str(run), "--split", split, "--json"], log, Clock(clock.hard, clock.hard))
    if code and split == "test" and "no test data" in output:
        return {}
    if code:
        raise Failed(f"scoring {split} ended with {code}\n{log.read_text(errors='replace')[-1500:]}")
    figures: dict[str, Any] = json.loads(output)["figures"]
    return {name: value["value"] if isinstance(value, dict) else value for name, value in figures.items()}  # or with interval


def measure(job: Job, work: Path, output: Path, clock: Clock) -> bool:
    """Write and print the result of one run; on failure print the error."""
    try:
        results = train(job, work, clock)
    except Exception as error:
        print(f"{job.name}: no result: {type(error).__name__}: {error}", flush=True)
        return False
    (output / f"{job.name}.json").write_text(json.dumps(results, indent=1) + "\n")
    figures = "; ".join(
        f"{split} " + ", ".join(f"{name} {value:.4g}" for name, value in scores.items())
        for split, scores in results["scores"].items()
    )
    print(f"{job.name}: {figures}; {results['steps']} steps, {results['train_seconds']:.0f} s", flush=True)
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--run", type=parse_job, action="append", default=[], metavar='"NAME RECIPE key=value …"')
    parser.add_argument("--then", type=parse_job, action="append", default=[], metavar='"NAME RECIPE key=value …"')
    parser.add_argument("--also", type=shlex.split, default=[], help="overrides for every run", metavar='"key=value …"')
    parser.add_argument("--work", type=Path, default=Path("runs"), help="folder that keeps the runs")
    parser.add_argument("--limit", type=float, default=7200, help="time limit in seconds")
    args = parser.parse_args(arguments)
    now = time.monotonic()
    clock = Clock(now + max(args.limit - SCORING, args.limit / 2), now + args.limit)
    for folder in (args.output, args.work):
        folder.mkdir(parents=True, exist_ok=True)
    written: list[bool] = []
    for stage in (args.run, args.then):
        jobs = [job._replace(options=[*job.options, *args.also]) for job in stage]
        with ThreadPoolExecutor(max(len(jobs), 1)) as together:
            written += together.map(lambda job: measure(job, args.work, args.output, clock), jobs)
    return 0 if all(written) else 1


if __name__ == "__main__":
    sys.exit(main())
