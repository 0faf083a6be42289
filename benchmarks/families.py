"""All model families trained on the built-in corpus: accuracy, and accuracy by sentence length.

    python benchmarks/families.py                           families without a result yet -> JSON and PNG
    python benchmarks/families.py --only bahdanau,luong     measure these again
    python benchmarks/families.py --draw                    draw only

A family is a recipe: `demo` is the Transformer, `demo-bahdanau` and so on are the others. All use the data of the built-in
grammar and the same search. Exact match and BLEU are on the recipe's test sentences; BLEU by length is on up to `PER_LENGTH`
unseen sentences of each length. Seconds are CPU time from data preparation to the last step, validation included, which
other processes hardly affect.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from peers.machine import machine_info

from heedful.data.grammar import generate
from heedful.data.splits import splits_of
from heedful.evaluation.metrics import METRICS
from heedful.runs.config import read_run
from heedful.runs.recipes import all_recipes, settings_digest
from heedful.runs.train import train_config
from heedful.tasks.translation.data import Examples, examples_of
from heedful.tasks.translation.predictor import Translator

HERE = Path(__file__).parent
OUTPUT = HERE / "results" / "families.json"
PICTURE = HERE.parent / "docs" / "pictures" / "families-length.png"
RECIPES = {
    "sutskever": "demo-sutskever",
    "bahdanau": "demo-bahdanau",
    "luong": "demo-luong",
    "gnmt": "demo-gnmt",
    "deep_att": "demo-deep-att",
    "convs2s": "demo-convs2s",
    "bytenet": "demo-bytenet",
    "mixed": "demo-mixed",
    "transformer": "demo",
    "experts": "demo-experts",
    "gpt": "demo-gpt",
}
SHORT = 8  # words: the length that a fixed vector should handle
GENERATED, PER_LENGTH = 40_000, 200  # unseen sentences that are generated, and kept per length
SHORTEST, LONGEST = 3, 12  # the few shorter or longer sentences are counted with these


class Pair(NamedTuple):
    source: str
    target: str


def families() -> dict[str, Path]:
    """name -> recipe, in the order of the table."""
    recipes = all_recipes()
    return {name: recipes[recipe] for name, recipe in RECIPES.items()}


def words_of(pair: Pair) -> int:
    return len(pair.source.split())


def by_length(pairs: Iterable[Pair], most: int) -> dict[int, list[Pair]]:
    """The first pairs of each length, in words of the source."""
    results: dict[int, list[Pair]] = {length: [] for length in range(SHORTEST, LONGEST + 1)}
    for pair in pairs:
        bucket = results[min(max(words_of(pair), SHORTEST), LONGEST)]
        if len(bucket) < most:
            bucket.append(pair)
    return {length: bucket for length, bucket in results.items() if bucket}


def scores_of(translator: Translator, pairs: Sequence[Pair]) -> dict[str, Any]:
    """Exact match and BLEU, with the number of sentences."""
    translations = translator.translate([pair.source for pair in pairs])
    references = [pair.target for pair in pairs]
    return {"sentences": len(pairs)} | {
        name: asdict(METRICS[name](translations, references)) for name in ("exact_match", "bleu")
    }


def measure(recipe: Path, lengths: dict[int, list[Pair]], overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Train a recipe and score its translations of unseen sentences."""
    config = read_run(recipe, overrides).config
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        started = time.process_time()
        train_config(config, run, device="cpu")
        seconds = time.process_time() - started
        translator = Translator.load(run, device="cpu")
    model: Any = translator.system.models[0]
    test = pairs_of(examples_of(splits_of(config.data).test, config.data.max_ratio))
    return {
        "recipe": recipe.stem,
        "settings": settings_digest(recipe),
        "overrides": list(overrides),
        "family": config.model.family,
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "steps": config.training.steps,
        "seconds": round(seconds, 1),
        "threads": torch.get_num_threads(),
        "test": scores_of(translator, test),
        "short": {"words": SHORT} | scores_of(translator, [pair for pair in test if words_of(pair) <= SHORT]),
        "lengths": {str(length): scores_of(translator, pairs) for length, pairs in lengths.items()},
        **machine_info(),
    }


def pairs_of(examples: Examples) -> list[Pair]:
    return [Pair(*both) for both in zip(examples.sources, examples.references, strict=True)]


def table(results: dict[str, Any]) -> str:
    """One line per family."""
    lines = [f"{'family':<14}{'weights':>10}{'steps':>7}{'seconds':>9}{'exact':>8}{f'up to {SHORT}':>9}{'BLEU':>7}"]
    for name, one in results.items():
        exact, short, bleu = (
            one[part][metric]["value"] for part, metric in (("test", "exact_match"), ("short", "exact_match"), ("test", "bleu"))
        )
        lines.append(
            f"{name:<14}{one['parameters']:>10,}{one['steps']:>7,}{one['seconds']:>9.0f}{exact:>7.1f}%{short:>8.1f}%{bleu:>7.1f}"
        )
    return "\n".join(lines)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    known = [*families()]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=lambda text: text.split(","), default=[], help=f"some of: {','.join(known)}")
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="key=value", help="overrides for all recipes: training.steps=20 …"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--picture", type=Path, default=PICTURE)
    parser.add_argument("--draw", action="store_true", help="only draw the results in the file")
    args = parser.parse_args(arguments)
    unknown = [name for name in args.only if name not in known]
    if unknown:
        parser.error(f"unknown family {unknown[0]!r}; expected some of: {', '.join(known)}")
    return args


def main(arguments: Sequence[str] | None = None) -> None:
    args = parse_arguments(arguments)
    results: dict[str, Any] = json.loads(args.output.read_text()) if args.output.exists() else {}
    selected = [] if args.draw else args.only or [name for name in families() if name not in results]
    if selected:
        torch.set_num_threads(args.threads)
        lengths = by_length((Pair(one.source, one.target) for one in generate("test", GENERATED)), PER_LENGTH)
        for name in selected:
            print(f"{name}:", file=sys.stderr)
            results[name] = measure(families()[name], lengths, args.set)
            results = {known: results[known] for known in RECIPES if known in results}
            args.output.parent.mkdir(parents=True, exist_ok=True)
            args.output.write_text(json.dumps(results, indent=1) + "\n")
    print(table(results))
    try:
        from families_picture import draw
    except ModuleNotFoundError as missing:
        print(f"no plot: {missing.name} is not installed; run --draw where it is installed")
    else:
        print(draw(results, args.picture))


if __name__ == "__main__":
    main()
