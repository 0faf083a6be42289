"""Train recipes of language models and of what is fine-tuned from them, score each, and write a file for each.

    python benchmarks/language.py benchmarks/results/language --work runs --also "training.precision=bf16 …" \
        --run "shakespeare-char shakespeare-char training.minutes=3" --run "wikitext2 wikitext2" --run "reviews gpt1-reviews" \
        --then "sst2 sst2-gpt1 training.init=runs/reviews" \
        --then "sst2-plain sst2-gpt1 training.init=runs/reviews task.auxiliary=0" \
        --then "sst2-scratch sst2-gpt1 'training.init=\\"\\"' training.schedule.learning_rate=3e-4"

A run is a name, a recipe and what to override. Those of --run begin at once, those of --then when all the others are done. Runs
are kept in --work under their names: what was begun there is continued. Validation data chooses the weights, and test data is
scored once, where there is some.
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

from peers.machine import about_here
from quality import STOPPED, Clock, Failed, Job, call, job

from heedful.recipe_files import find_recipe, settings_digest

SCORING = 30  # seconds before the limit at which training must stop


def train(one: Job, work: Path, clock: Clock) -> dict[str, Any]:
    """How it went, and what came out."""
    run, log = work / one.name, work / f"{one.name}.log"
    began = time.monotonic()
    code, _ = call(["heedful", "train", one.recipe, *one.options, "--run", str(run), "--json"], log, clock)
    seconds = time.monotonic() - began
    if code not in (0, STOPPED):
        raise Failed(f"training ended with {code}\n{log.read_text(errors='replace')[-1500:]}")
    told = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {
        "recipe": one.recipe,
        "settings": settings_digest(find_recipe(one.recipe)),
        "overrides": [option.replace(f"{work}/", "") for option in one.options],  # a run is called by its name
        "train_seconds": round(seconds, 1),
        "steps": told[-1]["step"],
        "stopped": code == STOPPED,
        "validations": [line for line in told if line["kind"] != "train"],
        "scores": {split: found for split in ("valid", "test") if (found := score(run, split, log, clock))},
        **about_here(),
    }


def score(run: Path, split: str, log: Path, clock: Clock) -> dict[str, float]:
    """The figures of `heed evaluate`; none where a run has no test data."""
    code, told = call(["heedful", "evaluate", str(run), "--split", split, "--json"], log, Clock(clock.hard, clock.hard))
    if code and split == "test" and "no test data" in told:
        return {}
    if code:
        raise Failed(f"scoring {split} ended with {code}\n{log.read_text(errors='replace')[-1500:]}")
    figures: dict[str, float] = json.loads(told)["figures"]
    return figures


def measure(one: Job, work: Path, output: Path, clock: Clock) -> bool:
    """Write what one run gave and say it in a line; or say why there is nothing."""
    try:
        found = train(one, work, clock)
    except Exception as error:
        print(f"{one.name}: no result: {type(error).__name__}: {error}", flush=True)
        return False
    (output / f"{one.name}.json").write_text(json.dumps(found, indent=1) + "\n")
    figures = "; ".join(
        f"{split} " + ", ".join(f"{name} {value:.4g}" for name, value in one.items()) for split, one in found["scores"].items()
    )
    print(f"{one.name}: {figures}; {found['steps']} steps, {found['train_seconds']:.0f} s", flush=True)
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--run", type=job, action="append", default=[], metavar='"NAME RECIPE key=value …"')
    parser.add_argument("--then", type=job, action="append", default=[], metavar='"NAME RECIPE key=value …"')
    parser.add_argument("--also", type=shlex.split, default=[], help="what to override in every run", metavar='"key=value …"')
    parser.add_argument("--work", type=Path, default=Path("runs"), help="where runs are kept")
    parser.add_argument("--limit", type=float, default=7200, help="seconds for everything")
    given = parser.parse_args(arguments)
    now = time.monotonic()
    clock = Clock(now + max(given.limit - SCORING, given.limit / 2), now + given.limit)
    for folder in (given.output, given.work):
        folder.mkdir(parents=True, exist_ok=True)
    written: list[bool] = []
    for stage in (given.run, given.then):
        jobs = [one._replace(options=[*one.options, *given.also]) for one in stage]
        with ThreadPoolExecutor(max(len(jobs), 1)) as together:
            written += together.map(lambda one: measure(one, given.work, given.output, clock), jobs)
    return 0 if all(written) else 1


if __name__ == "__main__":
    sys.exit(main())
