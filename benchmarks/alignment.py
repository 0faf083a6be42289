"""Word alignment by attention: the error rate on the gold alignments of the Hansards, of models that learned from anki-en-fr.

    python benchmarks/alignment.py                                             -> benchmarks/results/alignment.json
    python benchmarks/alignment.py --work runs/alignment \\
        --also "training.precision=bf16 training.cuda_graphs=true data.pad_to_multiple_of=8"

    bahdanau, transformer    each layer: the mean of its heads, one link a target word; then heads, moment and thresholds as
                             chosen on the 100 validation sentences. The 200 test sentences only judge.
    both directions          the Transformer and one that translates back: one set of heads of both, or each one's links made
                             one by a rule, as validation prefers
    guided                   a Transformer one head of which was taught the links of both directions, on its training text
                             (Garg et al., 2019)

All text is cut as the gold is (hansards.py). Runs are kept in --work: what was begun there is continued.
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

from hansards import cut
from peers.machine import about_here

from heedful.build import load_translator
from heedful.data.gold import Gold, SentencePair, read_gold, read_words
from heedful.data.input_lines import read_texts
from heedful.data.sources import find_path
from heedful.evaluation.symmetrization import SYMMETRIZATIONS
from heedful.evaluation.word_alignment import Link, alignment_error_rate, precision_and_recall
from heedful.running import train
from heedful.studies.alignment import Aligner, Models, align, as_pharaoh, choose_aligner, collect_head_weights
from heedful.studies.alignment_report import Judge, by_layer
from heedful.tasks.translate import System

RECIPES = {"bahdanau": "anki-en-fr-bahdanau", "transformer": "anki-en-fr"}
GUIDE = 0.05  # the weight of Garg et al.
BOOTSTRAP = 1000

Rule = Callable[[Sequence[SentencePair]], Iterator[set[Link]]]


class Sets(NamedTuple):
    valid: Gold
    test: Gold


def prepare(folder: Path) -> None:
    """anki-en-fr, cut as the gold is; what is there already stays."""
    folder.mkdir(parents=True, exist_ok=True)
    for split in ("train", "valid", "test"):
        for language in ("en", "fr"):
            written = folder / f"{split}.{language}"
            if not written.exists():
                lines = [cut(line, language) for line in read_texts(find_path(f"anki-en-fr/{split}.{language}.gz"))]
                partial = written.with_suffix(".partial")
                partial.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
                partial.rename(written)


def gold_sets() -> Sets:
    found = []
    for split in ("valid", "test"):
        files = [find_path(f"alignment-en-fr/{split}.{kind}.gz") for kind in ("en", "fr", "align")]
        gold = read_gold(*files)
        found.append(Gold([SentencePair(pair.source.lower(), pair.target.lower()) for pair in gold.pairs], gold.alignments))
    return Sets(*found)


def trained(recipe: str, folder: Path, options: Sequence[str]) -> System:
    train(recipe, options, run=folder)
    return load_translator(folder).system


def rate(found: Sequence[set[Link]], gold: Gold) -> dict[str, Any]:
    precision, recall = precision_and_recall(found, gold.alignments)
    score = alignment_error_rate(found, gold.alignments, bootstrap=BOOTSTRAP)
    return {"aer": asdict(score), "precision": precision, "recall": recall}


def plain(aligner: Aligner) -> dict[str, Any]:
    return {"heads": list(map(str, aligner.heads)), "moment": aligner.moment, **aligner.linking._asdict()}


def judge(name: str, system: System, sets: Sets) -> dict[str, Any]:
    """One system's row: each layer, and what validation chose."""
    valid, test = (Judge(collect_head_weights(Models(system), gold.pairs), gold.alignments) for gold in sets)
    aligner, error = choose_aligner(valid.watched, valid.gold)
    layers = [
        {"layer": one.layer, "heads": one.heads, "said": one.said.value, "fed": one.fed.value}
        | ({} if one.chosen is None or one.score is None else {"chosen": one.score.value, "by": plain(one.chosen)})
        for one in by_layer(test, valid)
    ]
    row = {"system": name, "layers": layers, "valid_aer": error, "aligner": plain(aligner)}
    return row | rate(test.watched.links(aligner), sets.test)


def rules(there: System, back: System, valid: Gold) -> dict[str, tuple[Rule, float]]:
    """Every way in which two models may align together, and its error rate on the validation sentences."""
    both = Models(there, back)
    aligner, error = choose_aligner(collect_head_weights(both, valid.pairs), valid.alignments)
    forward, _ = choose_aligner(collect_head_weights(Models(there), valid.pairs), valid.alignments)
    backward, _ = choose_aligner(collect_head_weights(Models(back), valid.swapped.pairs), valid.swapped.alignments)

    def joined(function: Callable[[set[Link], set[Link]], set[Link]]) -> Rule:
        def links(pairs: Sequence[SentencePair]) -> Iterator[set[Link]]:
            theirs = align(Models(back), (pair.swapped for pair in pairs), backward)
            turned = ({(j, i) for i, j in one} for one in theirs)
            return map(function, align(Models(there), pairs, forward), turned)

        return links

    found: dict[str, tuple[Rule, float]] = {"soft": (lambda pairs: align(both, pairs, aligner), error)}
    for name, function in SYMMETRIZATIONS.items():
        rule = joined(function)
        found[name] = rule, alignment_error_rate(list(rule(valid.pairs)), valid.alignments).value
    return found


def write_alignment(path: Path, found: Iterable[set[Link]]) -> None:
    """A line a pair; a file that is there is whole."""
    partial = path.with_suffix(".partial")
    with partial.open("w") as file:
        file.writelines(f"{as_pharaoh(links)}\n" for links in found)
    partial.rename(path)


def both_directions(there: System, back: System, sets: Sets) -> tuple[dict[str, Any], Rule]:
    """The row of the rule that validation prefers, and that rule."""
    ways = rules(there, back, sets.valid)
    best = min(ways, key=lambda name: ways[name][1])
    rates = {name: error for name, (_, error) in ways.items()}
    row = {"system": "both directions", "rule": best, "rules": rates, "valid_aer": rates[best]}
    return row | rate(list(ways[best][0](sets.test.pairs)), sets.test), ways[best][0]


def measure(work: Path, options: Sequence[str]) -> list[dict[str, Any]]:
    data, sets = work / "text", gold_sets()
    prepare(data)
    common, recipe = [f'data.folder="{data}"', *options], RECIPES["transformer"]
    rows = [judge("bahdanau", trained(RECIPES["bahdanau"], work / "bahdanau", common), sets)]
    there = trained(recipe, work / "forward", common)
    rows.append(judge("transformer", there, sets))
    back = trained(recipe, work / "backward", [*common, 'data.languages=["fr", "en"]'])
    rows.append(judge("transformer, fr-en", back, Sets(sets.valid.swapped, sets.test.swapped)))
    row, rule = both_directions(there, back, sets)
    rows.append(row)
    links = work / "train.align"
    if not links.exists():
        write_alignment(links, rule(read_words(data / "train.en", data / "train.fr")))
    corpus = f'data.train={{folder="{data}", languages=["en", "fr"], alignment="{links}"}}'
    guided = trained(recipe, work / "guided", [*common, corpus, f"task.guided_alignment={GUIDE}"])
    return [*rows, judge("transformer, guided", guided, sets)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "alignment.json")
    parser.add_argument("--work", type=Path, default=Path("runs/alignment"), help="where text and runs are kept")
    parser.add_argument("--also", type=shlex.split, default=[], help="what to override in every run", metavar='"key=value …"')
    given = parser.parse_args(arguments)
    rows = measure(given.work.resolve(), given.also)
    found = {"overrides": given.also, "guide": GUIDE, "rows": rows, **about_here()}
    given.output.write_text(json.dumps(found, indent=1) + "\n")
    for row in rows:
        print(f"{row['system']}: AER {row['aer']['value']:.1%}, on validation {row['valid_aer']:.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
