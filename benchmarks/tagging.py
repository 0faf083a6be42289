"""Tagging of UD English EWT beside an averaged perceptron.

    python benchmarks/tagging.py                                               the perceptron, one or two minutes
    python benchmarks/tagging.py runs/tagging-ewt-upos runs/ewt-2 runs/ewt-3   and the accuracy of these runs, with their mean

The perceptron (Collins, 2002) labels from left to right, with features of the words around each word, of suffixes, of its
spelling and of the two labels before it; its weights are averaged over all updates. Words that have one label in the training
data in at least 97% of 20 or more cases get that label. Pure Python, no tuning on the test data.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from peers.machine import machine_info

from heedful.data.tagged import TaggedConfig, TaggedSentence, find_split_file, read_sentences

EPOCHS = 8
FREQUENT, CERTAIN = 20, 0.97  # a word with one label
START, END = ("<s2>", "<s1>"), ("</s1>", "</s2>")


def normalize(word: str) -> str:
    """Lower case; numbers by their shape."""
    if word.isdigit():
        return "!year" if len(word) == 4 else "!digits"
    return "!number" if word[:1].isdigit() else word.lower()


def shape(word: str) -> str:
    """Kinds of characters, runs reduced to one: "McDonald's" -> XxXx'x."""
    kinds = ["X" if c.isupper() else "x" if c.islower() else "0" if c.isdigit() else c for c in word]
    return "".join(kind for at, kind in enumerate(kinds) if at == 0 or kinds[at - 1] != kind)


def features(at: int, word: str, context: Sequence[str], before: str, second: str) -> list[str]:
    """The features of a word; context: normalized words with two more on each side; before, second: the labels before it."""
    i = at + len(START)
    own = context[i]
    return [
        "bias",
        f"w {own}",
        f"s1 {own[-1:]}",
        f"s2 {own[-2:]}",
        f"s3 {own[-3:]}",
        f"s4 {own[-4:]}",
        f"p1 {word[:1]}",
        f"p2 {own[:2]}",
        f"p3 {own[:3]}",
        f"shape {shape(word)}",
        f"first {at == 0} {word[:1].isupper()}",
        f"t1 {before}",
        f"t12 {before} {second}",
        f"t1w {before} {own}",
        f"w-1 {context[i - 1]}",
        f"w-1s {context[i - 1][-3:]}",
        f"w-2 {context[i - 2]}",
        f"w+1 {context[i + 1]}",
        f"w+1s {context[i + 1][-3:]}",
        f"w+2 {context[i + 2]}",
        f"ww {context[i - 1]} {own}",
        f"ww+ {own} {context[i + 1]}",
    ]


class Perceptron:
    """Weights of (feature, label), and their sums over all updates."""

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = list(labels)
        self.weights: dict[str, dict[str, float]] = {}
        self.totals: dict[tuple[str, str], float] = defaultdict(float)
        self.stamps: dict[tuple[str, str], int] = defaultdict(int)
        self.updates = 0
        self.certain: dict[str, str] = {}

    def choose(self, given: Sequence[str]) -> str:
        scores = dict.fromkeys(self.labels, 0.0)
        for feature in given:
            for label, weight in self.weights.get(feature, {}).items():
                scores[label] += weight
        return max(self.labels, key=lambda label: (scores[label], label))

    def update(self, gold: str, chosen: str, given: Sequence[str]) -> None:
        self.updates += 1
        if gold == chosen:
            return
        for feature in given:
            own = self.weights.setdefault(feature, {})
            for label, change in ((gold, 1.0), (chosen, -1.0)):
                key = (feature, label)
                self.totals[key] += (self.updates - self.stamps[key]) * own.get(label, 0.0)
                self.stamps[key] = self.updates
                own[label] = own.get(label, 0.0) + change

    def average(self) -> None:
        for feature, own in self.weights.items():
            for label, weight in own.items():
                key = (feature, label)
                own[label] = (self.totals[key] + (self.updates - self.stamps[key]) * weight) / self.updates
            self.weights[feature] = {label: weight for label, weight in own.items() if weight}

    def tag(self, words: Sequence[str], gold: Sequence[str] | None = None) -> list[str]:
        """The labels of a sentence; gold: learn from these."""
        context = [*START, *map(normalize, words), *END]
        second, before = START
        chosen = []
        for at, word in enumerate(words):
            label = self.certain.get(word)
            if label is None:
                given = features(at, word, context, before, second)
                label = self.choose(given)
                if gold is not None:
                    self.update(gold[at], label, given)
            chosen.append(label)
            second, before = before, label
        return chosen


def certain_labels(sentences: Sequence[TaggedSentence]) -> dict[str, str]:
    """The label of words that have nearly always the same."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for word, label in pairs(sentences):
        counts[word][label] += 1
    best = {word: own.most_common(1)[0] for word, own in counts.items()}
    return {
        word: label
        for word, (label, count) in best.items()
        if counts[word].total() >= FREQUENT and count / counts[word].total() >= CERTAIN
    }


def pairs(sentences: Sequence[TaggedSentence]) -> Iterator[tuple[str, str]]:
    return (pair for sentence in sentences for pair in zip(sentence.words, sentence.labels, strict=True))


def train(sentences: Sequence[TaggedSentence], *, epochs: int = EPOCHS, seed: int = 1) -> Perceptron:
    model = Perceptron(sorted({label for _, label in pairs(sentences)}))
    model.certain = certain_labels(sentences)
    order = list(sentences)
    draw = random.Random(seed)
    for _ in range(epochs):
        draw.shuffle(order)
        for sentence in order:
            model.tag(sentence.words, sentence.labels)
    model.average()
    return model


def accuracy(model: Perceptron, sentences: Sequence[TaggedSentence]) -> float:
    right = sum(a == b for one in sentences for a, b in zip(model.tag(one.words), one.labels, strict=True))
    return right / sum(len(one.words) for one in sentences)


def read(data: TaggedConfig, split: str) -> list[TaggedSentence]:
    file = find_split_file(data, split)
    assert file is not None, "the corpus has three splits"
    return read_sentences(data, file)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, help="run folders to evaluate")
    parser.add_argument("--folder", default="ud-en-ewt", help="folder of the corpus")
    parser.add_argument("--column", default="upos", help="column of the label")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--output", type=Path, help="write the figures as JSON")
    args = parser.parse_args(arguments)
    data = TaggedConfig.model_validate({"form": "tagged", "folder": args.folder, "column": args.column})
    started = time.process_time()
    perceptron = train(read(data, "train"), epochs=args.epochs)
    seconds = time.process_time() - started
    results: dict[str, Any] = {"averaged perceptron": {s: accuracy(perceptron, read(data, s)) for s in ("valid", "test")}}
    results |= {str(run): evaluate(run) for run in args.runs}
    if len(args.runs) > 1:
        means = {s: sum(results[str(run)][s] for run in args.runs) / len(args.runs) for s in ("valid", "test")}
        results[f"mean of {len(args.runs)} runs"] = means
    for name, own in results.items():
        print(f"{name}: valid {own['valid']:.2%}  test {own['test']:.2%}")
    if args.output is not None:
        content = {"accuracy": results, "perceptron_seconds": round(seconds, 1), "epochs": args.epochs, **machine_info()}
        args.output.write_text(json.dumps(content, indent=1) + "\n")
    return 0


def evaluate(run: Path) -> dict[str, float]:
    import heedful

    tagger = heedful.Tagger.load(run)
    return {split: tagger.evaluate(split)["accuracy"] for split in ("valid", "test")}


if __name__ == "__main__":
    sys.exit(main())
