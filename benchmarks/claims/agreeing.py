"""A claim about heads: in a model that has to inflect verbs and adjectives, a head links them to what they agree with.

agreement    verbs and adjectives are given in their citation form, so that their own row has to find person, number and
             gender: those of the subject and of the noun (`grammar/agreement.py`). The best head of each relation is chosen on
             validation sentences; the fixed offset beside it is the best one on the test sentences themselves.

A coordinated subject ("Anna e Marco") is a subject of several words, and its plural comes from the conjunction. Beside the
figure over all its words are two others: of subjects of one word, and with the first word of every subject only, as in basic
Universal Dependencies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

import heedful
from claims import SEEDS, Evidence, by_seed
from heedful.data.toys import TaggedWords, agreement, sample
from heedful.inspection.analyses.heads import HeadsResult

RECIPE = "toy-agreement"
TESTED = {"valid": 1000, "test": 2000}  # sentences
REACHED = 0.8
Node = tuple[int, str]  # head, relation


def all_words(tree: Iterable[Node]) -> list[Node]:
    return list(tree)


def first_word(tree: Iterable[Node]) -> list[Node]:
    """The words of a coordinated subject after the first do not count."""
    return [(head, "dep" if relation.startswith("nsubj:") else relation) for head, relation in tree]


def one_word(tree: Iterable[Node]) -> list[Node]:
    """Coordinated subjects do not count."""
    nodes = list(tree)
    coordinated = {head for head, relation in nodes if relation.startswith("nsubj:")}
    return [(head, "dep" if relation.startswith("nsubj") and head in coordinated else relation) for head, relation in nodes]


class Relation(NamedTuple):
    name: str
    measure: str  # its name in the measures of a head
    trees: Callable[[Iterable[Node]], list[Node]]


RELATIONS = (
    Relation("verb → subject", "nsubj to dependent", all_words),
    Relation("adjective → noun", "amod to head", all_words),
)
OTHERS = (
    Relation("verb → subject of one word", "nsubj to dependent", one_word),
    Relation("verb → first word of the subject", "nsubj to dependent", first_word),
)


def write_trees(sentences: Iterable[TaggedWords], convert: Callable[[Iterable[Node]], list[Node]], path: Path) -> Path:
    """Write CoNLL-U."""
    with path.open("w") as file:
        for sentence in sentences:
            for at, (word, (head, relation)) in enumerate(zip(sentence.words, convert(sentence.tree), strict=True), start=1):
                file.write(f"{at}\t{word}\t_\t_\t_\t_\t{head + 1}\t{relation}\t_\t_\n")
            file.write("\n")
    return path


class Accuracy(NamedTuple):
    """Of one head."""

    head: tuple[int, int]  # layer, head
    value: float
    offset: float  # of the best fixed offset
    cases: int


def accuracies(result: HeadsResult, measure: str) -> list[Accuracy]:
    """One for each head."""
    return [
        Accuracy((head.layer, head.head), one.value, one.baseline or 0.0, one.cases)
        for head in result.heads
        for one in head.measures
        if one.role == "syntactic" and one.what == measure
    ]


def inflected(tagger: heedful.Tagger) -> float:
    """The share of test verbs and adjectives with the right form."""
    pairs = [
        pair for one in tagger.tagging(tagger.sentences("test")).sentences for pair in zip(one.gold, one.predicted, strict=True)
    ]
    asked = [gold == predicted for gold, predicted in pairs if gold != "-"]
    return sum(asked) / len(asked)


def agree(folder: Path) -> Evidence:
    tested = {split: list(sample(agreement, split, count)) for split, count in TESTED.items()}
    rows: list[dict[str, float]] = []
    offsets: dict[str, float] = {}
    for seed in SEEDS:
        own = folder / str(seed)
        options = ["training.threads=1", f"seed={seed}"]
        heedful.train(RECIPE, options, run=own / "run", device="cpu", console=Console(quiet=True))
        tagger = heedful.Tagger.load(own / "run")
        row = {"forms right": inflected(tagger)}
        for relation in (*RELATIONS, *OTHERS):
            results = {
                split: heedful.inspection.heads(tagger, conllu=path, sentences=TESTED[split])
                for split, sentences in tested.items()
                for path in [write_trees(sentences, relation.trees, own / f"{split}.conllu")]
            }
            best = max(accuracies(results["valid"], relation.measure), key=lambda one: one.value)
            found = next(one for one in accuracies(results["test"], relation.measure) if one.head == best.head)
            row[relation.name] = found.value
            offsets[f"{relation.name}: best fixed offset"] = found.offset
        rows.append(row)
    figures = by_seed(rows) | {name: f"{value:.1%}" for name, value in offsets.items()}
    return Evidence(figures, all(row[relation.name] >= REACHED for row in rows for relation in RELATIONS))
