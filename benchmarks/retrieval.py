"""Retrieval on Schema-Guided Dialogue: the system's reply among 99 distinct others, by dual encoders and by BM25.

    python benchmarks/retrieval.py --work runs           trains both recipes where runs/NAME is missing, then evaluates
                                                         -> benchmarks/results/retrieval.json

Every system turn of the test dialogues is ranked among 99 other distinct system turns of the test set, drawn with a fixed seed;
all systems rank the same candidates. BM25 reads the same turns as the model, or its best window of them; window, k1 and b are
chosen on valid. 95% intervals by a bootstrap over replies; differences are paired.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from peers.machine import machine_info

import heedful
from heedful.evaluation.ranking import Numbers, name_rankings, rank_statistics
from heedful.runs.recipes import all_recipes, settings_digest
from heedful.tasks.retrieval.command import EvaluateOptions
from heedful.tasks.retrieval.evaluate import draw_candidates, model_scores
from heedful.tasks.retrieval.report import report, resampled

RESULTS = Path(__file__).parent / "results" / "retrieval.json"
RECIPES = {"single-turn": "sgd-retrieval-single", "multi-turn": "sgd-retrieval"}
RESAMPLES = 1000


def train(recipe: str, run: Path, threads: int) -> None:
    """Train the recipe unless the run is there; its time is stored beside it."""
    if (run / "README.md").exists():
        return
    started, cpu = time.perf_counter(), time.process_time()
    heedful.train(recipe, [f"training.threads={threads}"], run=run, device="cpu")
    spent = {"train_seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - cpu, "threads": threads}
    (run / "seconds.json").write_text(json.dumps({name: round(value) for name, value in spent.items()}) + "\n")


def rows_of(retriever: heedful.Retriever, split: str) -> Numbers:
    """Recall@1, recall@10 and 1 / rank of every example."""
    encoded = retriever.data.encode(retriever.examples(split), retriever.system.target_tokenizer)
    drawn = draw_candidates(encoded.answers, len(encoded.texts), retriever.run.task.candidates)
    return rank_statistics(model_scores(retriever.dual_encoder, retriever.system, encoded, drawn).astype(np.float64))


def evaluate(name: str, recipe: str, run: Path, split: str) -> tuple[dict[str, Any], Numbers]:
    retriever = heedful.Retriever.load(run, device="cpu")
    found = report(retriever, split, EvaluateOptions(bootstrap=RESAMPLES, baselines=True))
    print(f"{name}\n{found.text()}\n", flush=True)
    seconds = run / "seconds.json"
    about = {"recipe": recipe, "settings": settings_digest(all_recipes()[recipe]), "turns": retriever.data.turns}
    about |= {"parameters": sum(parameter.numel() for parameter in retriever.model.parameters())}
    return {**about, **(json.loads(seconds.read_text()) if seconds.exists() else {}), **found.to_dict()}, rows_of(
        retriever, split
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("runs"), help="folder of the runs")
    parser.add_argument("--split", default="test")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args(arguments)
    results: dict[str, Any] = {}
    rows: dict[str, Numbers] = {}
    for name, recipe in RECIPES.items():
        train(recipe, args.work / recipe, args.threads)
        results[name], rows[name] = evaluate(name, recipe, args.work / recipe, args.split)
    gain = rows["multi-turn"] - rows["single-turn"]
    bounds = resampled(gain, RESAMPLES)
    difference = {metric: [value, *bounds[metric]] for metric, value in name_rankings(gain.mean(0)).items()}
    results["multi-turn - single-turn"] = difference
    for metric, (value, low, high) in difference.items():
        print(f"multi-turn - single-turn {metric}: {value:+.4f} ({low:+.4f} to {high:+.4f})")
    args.output.write_text(
        json.dumps({**results, "load_average": round(os.getloadavg()[0], 1), **machine_info()}, indent=1) + "\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
