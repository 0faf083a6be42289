"""Response perplexity on dialogue-sgd: the last turn alone, three turns as one text, and HRAN, with three seeds each.

    python benchmarks/chat.py --work runs/chat                     trains what is missing, scores, writes results/chat.json
    python benchmarks/chat.py --work runs/chat --jobs 9            nine runs at once, each in a process of its own
    python benchmarks/chat.py --work runs/chat --seconds 60        trains each run for a minute instead of its recipe's time

The data is encoded once, before the first run. The scores of a run are kept in the folder, and the results are written after
each run, of those that are scored; a run that fails leaves the others alone.
All models have the same tokenizer, since it is trained on the same turns, and score the same replies of the test data: a
difference in either is an error. The interval of a mean is that of Student's t over the seeds. Two models are compared reply by
reply: the difference of their losses per token, each the mean over seeds, and its 95% interval over resampled replies.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import combinations, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from peers.machine import machine_info

import heedful
from heedful.evaluation.resampling import bootstrap_sums, interval
from heedful.runs import build
from heedful.runs.load import read_recipe
from heedful.runs.recipes import find_recipe
from heedful.tasks.translation.evaluate import score_pairs

RECIPES = ("sgd-single", "sgd-history", "sgd-hran")
RESULTS = Path(__file__).parent / "results" / "chat.json"
STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # number of seeds -> the 97.5% quantile of Student's t
TRIALS, SEED = 1000, 12345


class Scores(NamedTuple):
    """The replies of the test data, scored by one run."""

    losses: NDArray[np.float64]  # (replies,): -log p
    tokens: NDArray[np.int64]  # (replies,)
    turns: list[int]  # turns before each reply that the model was given
    tokenizer: str  # fingerprint
    parameters: int
    steps: int


def name_of(recipe: str, seed: int) -> str:
    return f"{Path(recipe).stem}-{seed}"


def encode_data(recipes: Sequence[str], options: Sequence[str]) -> None:
    """Write the encoded training data of every recipe to the cache, so that no run spends its time on it."""
    for recipe in recipes:
        run = read_recipe(find_recipe(recipe), list(options)).config
        data = build.data_of(run)
        with tempfile.TemporaryDirectory() as folder:
            data.prepare(build.make_tokenizers(run, Path(folder), data), data.check())


def train(recipe: str, seed: int, work: Path, options: Sequence[str]) -> heedful.ChatBot:
    """The run of a seed, trained or continued if it is not finished."""
    run = work / name_of(recipe, seed)
    heedful.train(recipe, [f"seed={seed}", *options], run=run)
    return heedful.ChatBot.load(run)


def score(bot: heedful.ChatBot, split: str, limit: int) -> Scores:
    examples = bot.examples(split)
    sources, references = (side[: limit or None] for side in examples)
    scored = [(source, one) for source, one in zip(sources, score_pairs(bot.system, sources, references), strict=True) if one]
    found, separator = [one for _, one in scored], bot.run.data.template.separator
    return Scores(
        np.array([-one.log_probability for one in found]),
        np.array([one.tokens for one in found]),
        [source.count(separator) + 1 for source, _ in scored],
        bot.system.target_tokenizer.fingerprint,
        sum(parameter.numel() for parameter in bot.model.parameters()),
        int(bot.checkpoint.name.removeprefix("step-")) if bot.checkpoint.name.startswith("step-") else 0,
    )


def save_scores(scores: Scores, path: Path) -> None:
    about = scores._replace(losses=None, tokens=None)._asdict()  # type: ignore[arg-type]
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part.npz")
    np.savez(partial, losses=scores.losses, tokens=scores.tokens, about=json.dumps(about))
    partial.rename(path)


def load_scores(path: Path) -> Scores:
    with np.load(path) as stored:
        return Scores(**json.loads(str(stored["about"])) | {"losses": stored["losses"], "tokens": stored["tokens"]})


def scored_runs(args: argparse.Namespace, options: Sequence[str]) -> Iterator[tuple[str, int, Scores]]:
    """Train and score what has no scores, several runs at once; runs in the order in which they are finished."""
    passed = ["--split", args.split, "--limit", str(args.limit), "--work", str(args.work)]
    passed += ["--set", *options] if options else []

    def run(recipe: str, seed: int) -> Path:
        path: Path = args.work / "scores" / f"{name_of(recipe, seed)}.npz"
        if path.exists():
            return path
        if args.jobs == 1:
            save_scores(score(train(recipe, seed, args.work, options), args.split, args.limit), path)
            return path
        args.work.mkdir(parents=True, exist_ok=True)
        with (args.work / f"{name_of(recipe, seed)}.log").open("w") as log:
            one = [sys.executable, __file__, "--recipes", recipe, "--seeds", str(seed), "--part", *passed]
            subprocess.run(one, stdout=log, stderr=subprocess.STDOUT, check=True)
        return path

    with ThreadPoolExecutor(args.jobs) as pool:
        # the recipes alternate, so that fewer jobs than runs do not give one recipe more of the machine
        pending = {pool.submit(run, recipe, seed): (recipe, seed) for seed, recipe in product(args.seeds, args.recipes)}
        for done in as_completed(pending):
            recipe, seed = pending[done]
            try:
                yield recipe, seed, load_scores(done.result())
            except subprocess.CalledProcessError as error:
                log = args.work / f"{name_of(recipe, seed)}.log"
                print(f"{recipe}, seed {seed}: failed with exit code {error.returncode}\n{log.read_text()[-1500:]}", flush=True)


def perplexity(losses: NDArray[np.float64], tokens: NDArray[np.int64]) -> float:
    return math.exp(losses.sum() / tokens.sum())


def refuse_other_replies(scores: dict[str, list[Scores]]) -> None:
    every = [one for runs in scores.values() for one in runs]
    if len({one.tokenizer for one in every}) != 1 or any(not np.array_equal(one.tokens, every[0].tokens) for one in every):
        raise SystemExit("the runs have different tokenizers or scored different replies; expected the same in all of them")


def summarize(runs: Sequence[Scores], groups: NDArray[np.int64]) -> dict[str, Any]:
    """The figures of one model; groups (replies,): turns before each reply in the longest window."""
    values = [perplexity(one.losses, one.tokens) for one in runs]
    mean = statistics.mean(values)
    half = STUDENT[len(values)] * statistics.stdev(values) / math.sqrt(len(values)) if len(values) in STUDENT else 0.0
    losses, tokens = np.mean([one.losses for one in runs], axis=0), runs[0].tokens
    by_turns = {
        str(turns): round(perplexity(losses[groups == turns], tokens[groups == turns]), 3)
        for turns in sorted(set(groups.tolist()))
    }
    return {
        "perplexity": round(mean, 3),
        "interval": [round(mean - half, 3), round(mean + half, 3)],
        "seeds": [round(value, 3) for value in values],
        "by_turns": by_turns,
        "parameters": runs[0].parameters,
        "steps": [one.steps for one in runs],
    }


def compare(first: Sequence[Scores], second: Sequence[Scores]) -> dict[str, Any]:
    """The loss per token of the second model less that of the first, over the same replies: negative, the second is better."""
    losses = [np.mean([one.losses for one in runs], axis=0) for runs in (first, second)]
    tokens = first[0].tokens
    rows = np.stack([losses[1] - losses[0], tokens], axis=1)  # (replies, 2)
    sums = bootstrap_sums(rows, TRIALS, SEED)
    low, high = interval(sums[:, 0] / sums[:, 1])
    wins = float(np.mean(losses[1] < losses[0]))
    difference = float(rows[:, 0].sum() / tokens.sum())
    return {"difference": difference, "interval": [low, high], "replies_better": round(wins, 4)}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("runs/chat"), help="folder that keeps the runs")
    parser.add_argument("--seconds", type=float, help="training time of each run; default: that of its recipe")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES))
    parser.add_argument("--split", default="test")
    parser.add_argument("--limit", type=int, default=0, help="replies to score; 0: all")
    parser.add_argument("--set", nargs="+", default=[], help="overrides of every run", metavar="KEY=VALUE")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--jobs", type=int, default=1, help="runs at once")
    parser.add_argument("--part", action="store_true", help="train and score the runs, and write no results")
    args = parser.parse_args(arguments)
    options = [*args.set, *([] if args.seconds is None else [f"training.minutes={args.seconds / 60}"])]
    started = time.monotonic()
    if not args.part:
        encode_data(args.recipes, options)
        print(f"data encoded after {time.monotonic() - started:.0f} s", flush=True)
    found: dict[str, dict[int, Scores]] = {recipe: {} for recipe in args.recipes}
    for recipe, seed, one in scored_runs(args, options):
        found[recipe][seed] = one
        loss, after = perplexity(one.losses, one.tokens), time.monotonic() - started
        print(f"{recipe}, seed {seed}: perplexity {loss:.3f} ({one.steps} steps, after {after:.0f} s)", flush=True)
        if not args.part:
            known = {recipe: [runs[seed] for seed in sorted(runs)] for recipe, runs in found.items() if runs}
            args.output.write_text(json.dumps(results_of(known, args, options), indent=1) + "\n")
    if not args.part and args.output.exists():
        print_results(json.loads(args.output.read_text()))
    return 0 if all(len(runs) == len(args.seeds) for runs in found.values()) else 1


def results_of(scores: dict[str, list[Scores]], args: argparse.Namespace, options: Sequence[str]) -> dict[str, Any]:
    refuse_other_replies(scores)
    longest = max(scores.values(), key=lambda runs: max(runs[0].turns))
    groups = np.array(longest[0].turns)
    models = {name: summarize(runs, groups) for name, runs in scores.items()}
    pairs = {f"{second} - {first}": compare(scores[first], scores[second]) for first, second in combinations(scores, 2)}
    return {
        "split": args.split,
        "replies": len(groups),
        "tokens": int(longest[0].tokens.sum()),
        "models": models,
        "paired": pairs,
        "winner": min(models, key=lambda name: models[name]["perplexity"]),
        "overrides": options,
        "jobs": args.jobs,
        **machine_info(),
    }


def print_results(results: dict[str, Any]) -> None:
    for name, figures in results["models"].items():
        low, high = figures["interval"]
        print(f"{name}: perplexity {figures['perplexity']:.2f} ({low:.2f} to {high:.2f}), {figures['parameters']:,} parameters")
    for name, figures in results["paired"].items():
        low, high = figures["interval"]
        print(f"{name}: {figures['difference']:+.4f} nats per token ({low:+.4f} to {high:+.4f})")


if __name__ == "__main__":
    sys.exit(main())
