"""Which encoder heads look at a neighbor: models of one recipe that tell positions in different ways.

    python benchmarks/heads.py WORK --also "training.precision=bf16 training.cuda_graphs=true data.pad_to_multiple_of=16" \
        --run "sinusoidal" --run "rotary model.position=rotary" --run "rotary-deep model.position=rotary model.layers=6"

A run is a name and what to override in the recipe. Each is trained, unless WORK holds it already, and asked about its heads
by `heed inspect --heads` on the first validation sentences.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from peers.machine import about_here
from pruning import heed, known
from quality import Clock

HERE = Path(__file__).parent


def learn(name: str, changes: list[str], given: argparse.Namespace, clock: Clock) -> dict[str, Any]:
    """Train a model and ask it about its heads."""
    run, log = given.work / name, given.work / f"{name}.log"
    trained = heed(["train", given.recipe, *given.also, *changes, "--run", str(run)], log, clock)
    asked = heed(["inspect", str(run), "--heads", "--sentences", str(given.sentences)], log, clock)
    found = {"name": name, "changes": changes, "also": given.also, "recipe": given.recipe, "sentences": given.sentences}
    return found | {
        "bleu": trained["metrics"]["bleu"],
        "heads": [brief(one) for one in asked["heads"]["heads"]],
        **about_here(),
    }


def brief(head: dict[str, Any]) -> dict[str, Any]:
    """Where it looks most, how often, how surely, and what it is worth."""
    place = next(measure for measure in head["measures"] if measure["role"] == "positional") if head["kind"] != "cross" else {}
    kept = {name: head[name] for name in ("kind", "layer", "head")}
    figures = {"confidence": head["confidence"], "ablation": head["ablation"], "share": place.get("value", 0.0)}
    return kept | {"looks": place.get("what", "")} | {name: round(value, 5) for name, value in figures.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="a folder that keeps the runs")
    parser.add_argument("--recipe", default="multi30k-en-de")
    parser.add_argument("--run", action="append", type=shlex.split, required=True, metavar='"NAME key=value …"')
    parser.add_argument("--also", type=shlex.split, default=[], help="what to override in every run", metavar='"key=value …"')
    parser.add_argument("--sentences", type=int, default=300)
    parser.add_argument("--limit", type=float, default=3600, help="seconds for everything")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "heads.json")
    given = parser.parse_args(arguments)
    given.work.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + given.limit
    found = []
    for name, *changes in given.run:
        path = given.work / f"{name}.json"
        found.append(known(path, partial(learn, name, changes, given, Clock(end, end))))
    given.output.write_text('{"models": [\n' + ",\n".join(json.dumps(one) for one in found) + "\n]}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
