"""Every family of models learns the built-in corpus: how much of it, and how that depends on the length of a sentence.

    python benchmarks/families.py                           whatever is not in the file yet -> JSON, and a PNG
    python benchmarks/families.py --only bahdanau,luong     these, again
    python benchmarks/families.py --draw                    nothing but the picture

A family is a recipe: `demo` is the Transformer, `demo-bahdanau` and the others say what they are. All have the same data, which
is the grammar's, and the same search. Exact match and BLEU are of the recipe's own test sentences; BLEU against length is of
the first `PER_LENGTH` unseen sentences of each length, as far as there are so many. Seconds are those of the processor, from
the first look at the data to the last step, validation included: a busy machine hardly stretches them.
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
from peers.machine import about_here

from heedful.build import Translator, examples_of, load_translator
from heedful.config import read_run
from heedful.data.grammar import generate
from heedful.data.splits import splits_of
from heedful.evaluation.metrics import METRICS
from heedful.recipe_files import all_recipes, settings_digest
from heedful.running import train_config
from heedful.tasks.evaluate_translations import Examples

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
SHORT = 8  # words: as far as a fixed vector is asked to remember
DRAWN, PER_LENGTH = 40_000, 200  # unseen sentences that are looked through, and kept of each length
SHORTEST, LONGEST = 3, 12  # those that are shorter still, or longer, are few: they are counted with these


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
    found: dict[int, list[Pair]] = {length: [] for length in range(SHORTEST, LONGEST + 1)}
    for pair in pairs:
        bucket = found[min(max(words_of(pair), SHORTEST), LONGEST)]
        if len(bucket) < most:
            bucket.append(pair)
    return {length: bucket for length, bucket in found.items() if bucket}


def scores_of(translator: Translator, pairs: Sequence[Pair]) -> dict[str, Any]:
    """Exact match and BLEU, and of how many sentences."""
    said = translator.translate([pair.source for pair in pairs])
    references = [pair.target for pair in pairs]
    return {"sentences": len(pairs)} | {name: asdict(METRICS[name](said, references)) for name in ("exact_match", "bleu")}


def measure(recipe: Path, lengths: dict[int, list[Pair]], overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Train by the recipe, and score what it says of unseen sentences."""
    config = read_run(recipe, overrides).config
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        began = time.process_time()
        train_config(config, run, device="cpu")
        seconds = time.process_time() - began
        translator = load_translator(run, device="cpu")
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
        **about_here(),
    }


def pairs_of(examples: Examples) -> list[Pair]:
    return [Pair(*both) for both in zip(examples.sources, examples.references, strict=True)]


def table(found: dict[str, Any]) -> str:
    """A line for each family."""
    lines = [f"{'family':<14}{'weights':>10}{'steps':>7}{'seconds':>9}{'exact':>8}{f'up to {SHORT}':>9}{'BLEU':>7}"]
    for name, one in found.items():
        exact, short, bleu = (
            one[part][metric]["value"] for part, metric in (("test", "exact_match"), ("short", "exact_match"), ("test", "bleu"))
        )
        lines.append(
            f"{name:<14}{one['parameters']:>10,}{one['steps']:>7,}{one['seconds']:>9.0f}{exact:>7.1f}%{short:>8.1f}%{bleu:>7.1f}"
        )
    return "\n".join(lines)


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    known = [*families()]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=lambda text: text.split(","), default=[], help=f"some of: {','.join(known)}")
    parser.add_argument("--set", nargs="*", default=[], metavar="key=value", help="more settings, for all: training.steps=20 …")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--picture", type=Path, default=PICTURE)
    parser.add_argument("--draw", action="store_true", help="measure nothing, draw what the file holds")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.only if name not in known]
    if unknown:
        parser.error(f"unknown family {unknown[0]!r}; expected some of: {', '.join(known)}")
    return given


def main(arguments: Sequence[str] | None = None) -> None:
    given = options(arguments)
    found: dict[str, Any] = json.loads(given.output.read_text()) if given.output.exists() else {}
    wanted = [] if given.draw else given.only or [name for name in families() if name not in found]
    if wanted:
        torch.set_num_threads(given.threads)
        lengths = by_length((Pair(one.source, one.target) for one in generate("test", DRAWN)), PER_LENGTH)
        for name in wanted:
            print(f"{name}:", file=sys.stderr)
            found[name] = measure(families()[name], lengths, given.set)
            found = {known: found[known] for known in RECIPES if known in found}
            given.output.parent.mkdir(parents=True, exist_ok=True)
            given.output.write_text(json.dumps(found, indent=1) + "\n")
    print(table(found))
    try:
        from families_picture import draw
    except ModuleNotFoundError as missing:
        print(f"no picture: {missing.name} is not installed; draw it elsewhere with --draw")
    else:
        print(draw(found, given.picture))


if __name__ == "__main__":
    main()
