"""Word alignment from attention weights: AER on the gold alignments of the Hansards, for models trained on anki-en-fr.

    python benchmarks/alignment.py                                             -> benchmarks/results/alignment.json
    python benchmarks/alignment.py --work runs/alignment \\
        --also "data.pad_to_multiple_of=8"

    bahdanau, transformer    each layer: the mean of its heads, one link per target word; then heads, decoding step and
                             thresholds selected on the 100 validation sentences. The 200 test sentences are for scoring only.
    both directions          the Transformer and one for the reverse direction: one set of heads of both models, or the links of
                             both combined by a symmetrization rule, selected on validation sentences
    guided                   a Transformer with one head supervised by the links of both directions on the training text
                             (Garg et al., 2019)

All text is tokenized like the gold data (hansards.py). Runs are kept in --work, and unfinished runs are resumed.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from hansards import normalize
from peers.machine import machine_info

from heedful.data.gold import Gold, SentencePair, read_gold, read_words
from heedful.data.input_lines import read_texts
from heedful.data.sources import find_path
from heedful.evaluation.symmetrization import SYMMETRIZATIONS
from heedful.evaluation.word_alignment import Link, alignment_error_rate, precision_and_recall
from heedful.inspection.measures.alignment_heads import Aligner, Models, align, as_pharaoh, choose_aligner, collect_head_weights
from heedful.inspection.measures.alignment_scores import GoldSet, by_layer
from heedful.runs.train import train
from heedful.tasks.system import System
from heedful.tasks.translation.predictor import Translator

RECIPES = {"bahdanau": "anki-en-fr-bahdanau", "transformer": "anki-en-fr"}
GUIDE = 0.05  # the weight of Garg et al.
BOOTSTRAP = 1000

Rule = Callable[[Sequence[SentencePair]], Iterator[set[Link]]]


class Sets(NamedTuple):
    valid: Gold
    test: Gold


def prepare(folder: Path) -> None:
    """Write anki-en-fr, tokenized like the gold data; existing files are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    for split in ("train", "valid", "test"):
        for language in ("en", "fr"):
            path = folder / f"{split}.{language}"
            if not path.exists():
                lines = [normalize(line, language) for line in read_texts(find_path(f"anki-en-fr/{split}.{language}.gz"))]
                partial = path.with_suffix(".partial")
                partial.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
                partial.rename(path)


def gold_sets() -> Sets:
    results = []
    for split in ("valid", "test"):
        files = [find_path(f"alignment-en-fr/{split}.{kind}.gz") for kind in ("en", "fr", "align")]
        gold = read_gold(*files)
        results.append(Gold([SentencePair(pair.source.lower(), pair.target.lower()) for pair in gold.pairs], gold.alignments))
    return Sets(*results)


def train_system(recipe: str, folder: Path, options: Sequence[str]) -> System:
    train(recipe, options, run=folder)
    return Translator.load(folder).system


def rate(results: Sequence[set[Link]], gold: Gold) -> dict[str, Any]:
    precision, recall = precision_and_recall(results, gold.alignments)
    score = alignment_error_rate(results, gold.alignments, bootstrap=BOOTSTRAP)
    return {"aer": asdict(score), "precision": precision, "recall": recall}


def describe_aligner(aligner: Aligner) -> dict[str, Any]:
    return {"heads": list(map(str, aligner.heads)), "moment": aligner.moment, **aligner.rule._asdict()}


def score_system(name: str, system: System, sets: Sets) -> dict[str, Any]:
    """The row of one system: each layer, and the aligner selected on validation sentences."""
    valid, test = (GoldSet(collect_head_weights(Models(system), gold.pairs), gold.alignments) for gold in sets)
    aligner, error = choose_aligner(valid.weights, valid.gold)
    layers = [
        {"layer": one.layer, "heads": one.heads, "said": one.predict.value, "fed": one.consume.value}
        | ({} if one.chosen is None or one.score is None else {"chosen": one.score.value, "by": describe_aligner(one.chosen)})
        for one in by_layer(test, valid)
    ]
    row = {"system": name, "layers": layers, "valid_aer": error, "aligner": describe_aligner(aligner)}
    return row | rate(test.weights.links(aligner), sets.test)


def rules(there: System, back: System, valid: Gold) -> dict[str, tuple[Rule, float]]:
    """All rules to align with two models, with their AER on the validation sentences."""
    both = Models(there, back)
    aligner, error = choose_aligner(collect_head_weights(both, valid.pairs), valid.alignments)
    forward, _ = choose_aligner(collect_head_weights(Models(there), valid.pairs), valid.alignments)
    backward, _ = choose_aligner(collect_head_weights(Models(back), valid.swapped.pairs), valid.swapped.alignments)

    def combine(function: Callable[[set[Link], set[Link]], set[Link]]) -> Rule:
        def links(pairs: Sequence[SentencePair]) -> Iterator[set[Link]]:
            reverse = align(Models(back), (pair.swapped for pair in pairs), backward)
            flipped = ({(j, i) for i, j in links} for links in reverse)
            return map(function, align(Models(there), pairs, forward), flipped)

        return links

    results: dict[str, tuple[Rule, float]] = {"soft": (lambda pairs: align(both, pairs, aligner), error)}
    for name, function in SYMMETRIZATIONS.items():
        rule = combine(function)
        results[name] = rule, alignment_error_rate(list(rule(valid.pairs)), valid.alignments).value
    return results


def write_alignment(path: Path, results: Iterable[set[Link]]) -> None:
    """Write one line per pair; a file that exists is complete."""
    partial = path.with_suffix(".partial")
    with partial.open("w") as file:
        file.writelines(f"{as_pharaoh(links)}\n" for links in results)
    partial.rename(path)


def both_directions(there: System, back: System, sets: Sets) -> tuple[dict[str, Any], Rule]:
    """The row of the rule with the lowest validation AER, and that rule."""
    ways = rules(there, back, sets.valid)
    best = min(ways, key=lambda name: ways[name][1])
    rates = {name: error for name, (_, error) in ways.items()}
    row = {"system": "both directions", "rule": best, "rules": rates, "valid_aer": rates[best]}
    return row | rate(list(ways[best][0](sets.test.pairs)), sets.test), ways[best][0]


def measure(work: Path, options: Sequence[str]) -> list[dict[str, Any]]:
    data, sets = work / "text", gold_sets()
    prepare(data)
    common, recipe = [f'data.folder="{data}"', *options], RECIPES["transformer"]
    rows = [score_system("bahdanau", train_system(RECIPES["bahdanau"], work / "bahdanau", common), sets)]
    there = train_system(recipe, work / "forward", common)
    rows.append(score_system("transformer", there, sets))
    back = train_system(recipe, work / "backward", [*common, 'data.languages=["fr", "en"]'])
    rows.append(score_system("transformer, fr-en", back, Sets(sets.valid.swapped, sets.test.swapped)))
    row, rule = both_directions(there, back, sets)
    rows.append(row)
    links = work / "train.align"
    if not links.exists():
        write_alignment(links, rule(read_words(data / "train.en", data / "train.fr")))
    corpus = f'data.train={{folder="{data}", languages=["en", "fr"], alignment="{links}"}}'
    guided = train_system(recipe, work / "guided", [*common, corpus, f"task.guided_alignment={GUIDE}"])
    return [*rows, score_system("transformer, guided", guided, sets)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "alignment.json")
    parser.add_argument("--work", type=Path, default=Path("runs/alignment"), help="folder that keeps text and runs")
    parser.add_argument("--also", type=shlex.split, default=[], help="overrides for every run", metavar='"key=value …"')
    args = parser.parse_args(arguments)
    rows = measure(args.work.resolve(), args.also)
    results = {"overrides": args.also, "guide": GUIDE, "rows": rows, **machine_info()}
    args.output.write_text(json.dumps(results, indent=1) + "\n")
    for row in rows:
        print(f"{row['system']}: AER {row['aer']['value']:.1%}, on validation {row['valid_aer']:.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
