"""A claim about sentiment: "not terrible" is positive, and the attention of the adjective shows why.

negation    each word may have "not" or "perhaps" before it, so that the words alone do not determine the label. Three routes
            around the attention of the adjective to "not" are closed: in a causal model "not" cannot attend to the adjective
            after it; relative positions of at most two words keep the last token from finding what stands before the adjective;
            and with "perhaps", the absence of other words before the adjective does not mean "not".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
from rich.console import Console

import heedful
from claims import SEEDS, Evidence, by_seed
from heedful.data.toys import NEGATIVE, NOT, POSITIVE, LabeledText, negation, sample
from heedful.evaluation.baselines import bag_of_words

RECIPE = "toy-negation"
SHOWN = 300  # negated texts whose attention is read
LABELS = ("negative", "positive", "open")
LOOKED_FOR = '"not" has the largest weight of the adjective'
Head = tuple[int, int]  # layer, head


def negated(texts: Iterable[LabeledText]) -> Iterable[str]:
    """The texts in which "not" negates the adjective."""
    for _, text in texts:
        words = text.split()
        if any(word == NOT and after in POSITIVE + NEGATIVE for word, after in pairwise(words)):
            yield text


def top_on_not(classifier: heedful.Classifier, texts: Iterable[str]) -> Counter[Head]:
    """How often "not" has the largest weight in the row of the adjective, of each head."""
    hits: Counter[Head] = Counter()
    for text in texts:
        trace = heedful.inspection.attention(classifier, text).trace
        for one in trace.maps:
            queries, keys = trace.queries(one), trace.keys(one)
            row = next(at for at, word in enumerate(queries) if word in POSITIVE + NEGATIVE)
            for head, top in enumerate(one.weights[:, row].argmax(-1).tolist()):
                hits[one.layer, head] += keys[top] == NOT
    return hits


def bag_accuracy() -> float:
    """The accuracy of a bag of words on the test texts."""
    train, test = (list(sample(negation, split, count)) for split, count in (("train", 10_000), ("test", 1000)))
    gold = [np.array([[label == name for name in LABELS] for label, _ in part]) for part in (train, test)]
    predicted = bag_of_words([text for _, text in train], gold[0], [text for _, text in test], one_label=True)
    return float((predicted == gold[1]).all(1).mean())


def not_terrible(folder: Path) -> Evidence:
    """The head is chosen on validation texts, for each seed."""
    valid, test = (list(islice(negated(sample(negation, split, 20 * SHOWN)), SHOWN)) for split in ("valid", "test"))
    rows: list[dict[str, float]] = []
    heads = []
    for seed in SEEDS:
        run, options = folder / str(seed), ["training.threads=1", f"seed={seed}"]
        heedful.train(RECIPE, options, run=run, device="cpu", console=Console(quiet=True))
        classifier = heedful.Classifier.load(run)
        ((head, _),) = top_on_not(classifier, valid[:100]).most_common(1)
        heads.append(f"layer {head[0]}, head {head[1]}")
        share = top_on_not(classifier, test)[head] / len(test)
        rows.append({"accuracy": classifier.evaluate("test")["accuracy"], LOOKED_FOR: share})
    bag = bag_accuracy()
    figures = by_seed(rows) | {"bag of words": f"{bag:.1%}", "negated texts": str(len(test)), "heads": "; ".join(heads)}
    return Evidence(figures, bag <= 0.75 and all(row["accuracy"] >= 0.95 and row[LOOKED_FOR] >= 0.9 for row in rows))
