"""Previous-token and next-token heads in the encoder: models of one recipe with different positional encodings.

    python benchmarks/heads.py WORK \
        --run "sinusoidal" --run "rotary model.position=rotary" --run "rotary-deep model.position=rotary model.layers=6"

A run is a name and overrides of the recipe. Each is trained, unless WORK already contains it, and its heads are measured with
`heed inspect heads` on the first validation sentences.
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

from peers.machine import machine_info
from pruning import heed, load_or_compute
from quality import Clock

HERE = Path(__file__).parent


def learn(name: str, changes: list[str], args: argparse.Namespace, clock: Clock) -> dict[str, Any]:
    """Train a model and measure its heads."""
    run, log = args.work / name, args.work / f"{name}.log"
    trained = heed(["train", args.recipe, *args.also, *changes, "--run", str(run)], log, clock)
    inspected = heed(["inspect", "heads", str(run), "--sentences", str(args.sentences)], log, clock)
    results = {"name": name, "changes": changes, "also": args.also, "recipe": args.recipe, "sentences": args.sentences}
    return results | {
        "bleu": trained["metrics"]["bleu"],
        "heads": [brief(one) for one in inspected["heads"]],
        **machine_info(),
    }


def brief(head: dict[str, Any]) -> dict[str, Any]:
    """The relative position a head attends to, how often, its confidence, and its ablation loss."""
    positional = (
        next(measure for measure in head["measures"] if measure["role"] == "positional") if head["kind"] != "cross" else {}
    )
    kept = {name: head[name] for name in ("kind", "layer", "head")}
    figures = {"confidence": head["confidence"], "ablation": head["ablation"], "share": positional.get("value", 0.0)}
    return kept | {"looks": positional.get("what", "")} | {name: round(value, 5) for name, value in figures.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="folder that keeps the runs")
    parser.add_argument("--recipe", default="multi30k-en-de")
    parser.add_argument("--run", action="append", type=shlex.split, required=True, metavar='"NAME key=value …"')
    parser.add_argument("--also", type=shlex.split, default=[], help="overrides for every run", metavar='"key=value …"')
    parser.add_argument("--sentences", type=int, default=300)
    parser.add_argument("--limit", type=float, default=3600, help="time limit in seconds")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "heads.json")
    args = parser.parse_args(arguments)
    args.work.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + args.limit
    results = []
    for name, *changes in args.run:
        path = args.work / f"{name}.json"
        results.append(load_or_compute(path, partial(learn, name, changes, args, Clock(end, end))))
    args.output.write_text('{"models": [\n' + ",\n".join(json.dumps(one) for one in results) + "\n]}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
