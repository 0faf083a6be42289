"""The report of `heed evaluate` for tagging: accuracy, a table of labels, the F1 of spans, and baselines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from heedful.data.tagged import TaggedSentence
from heedful.evaluation.metrics import SEED
from heedful.evaluation.resampling import Numbers, bootstrap_sums, interval
from heedful.evaluation.spans import count_spans, f1
from heedful.evaluation.tables import table
from heedful.tasks.tagging.evaluate import SentenceLabels, Tagging


class Estimate(NamedTuple):
    """A figure and its 95% interval, by a bootstrap over sentences; None: no interval was computed."""

    value: float
    low: float | None = None
    high: float | None = None

    def text(self) -> str:
        return f"{self.value:.2%}" + ("" if self.low is None else f" ({self.low:.2%} to {self.high:.2%})")


class LabelScore(NamedTuple):
    """Precision, recall and F1 of a label, and the number of its words, or spans, in the reference."""

    precision: float
    recall: float
    f1: float
    gold: int


@dataclass(frozen=True)
class TaggingReport:
    split: str
    sentences: int
    words: int
    loss: float
    accuracy: Estimate
    labels: dict[str, LabelScore]
    resamples: int
    span_f1: Estimate | None = None  # of labels in BIO notation
    spans: dict[str, LabelScore] = field(default_factory=dict)
    baselines: dict[str, float] = field(default_factory=dict)  # accuracy of each
    warnings: Sequence[str] = ()

    def text(self) -> str:
        rows = [
            ("figure", self.split),
            ("sentences", f"{self.sentences:,}"),
            ("words", f"{self.words:,}"),
            ("loss", f"{self.loss:.4g}"),
            ("accuracy", self.accuracy.text()),
            *([("span F1", self.span_f1.text())] if self.span_f1 is not None else []),
            *((f"accuracy of {name}", f"{value:.2%}") for name, value in self.baselines.items()),
        ]
        parts = [table(rows), score_table("label", self.labels)]
        return "\n\n".join([*parts, *([score_table("span", self.spans)] if self.spans else [])])

    def to_dict(self) -> dict[str, Any]:
        estimates = {"accuracy": self.accuracy} | ({} if self.span_f1 is None else {"span_f1": self.span_f1})
        return {
            "split": self.split,
            "sentences": self.sentences,
            "words": self.words,
            "figures": {"loss": self.loss} | {name: one.value for name, one in estimates.items()},
            "intervals": {name: [one.low, one.high] for name, one in estimates.items() if one.low is not None},
            "bootstrap": self.resamples,
            "labels": {name: score._asdict() for name, score in self.labels.items()},
            "spans": {name: score._asdict() for name, score in self.spans.items()},
            "baselines": self.baselines,
        }


def score_table(what: str, scores: Mapping[str, LabelScore]) -> str:
    rows = [(name, f"{s.precision:.2%}", f"{s.recall:.2%}", f"{s.f1:.2%}", f"{s.gold:,}") for name, s in scores.items()]
    return table([(what, "precision", "recall", "F1", "count"), *rows])


def make_report(
    split: str, tagging: Tagging, *, has_spans: bool, resamples: int, baselines: Mapping[str, float]
) -> TaggingReport:
    sentences = tagging.sentences
    words = np.array([[correct_words(one), len(one.gold)] for one in sentences], dtype=np.float64)
    span_f1, spans = None, {}
    if has_spans:
        counts = np.array([count_spans(one.predicted, one.gold) for one in sentences], dtype=np.float64)
        span_f1 = estimate(counts, resamples, span_formula)
        spans = span_scores(sentences)
    return TaggingReport(
        split,
        len(sentences),
        tagging.words,
        tagging.loss,
        estimate(words, resamples, lambda sums: sums[:, 0] / np.maximum(sums[:, 1], 1)),
        label_scores(sentences),
        resamples,
        span_f1,
        spans,
        dict(baselines),
    )


def correct_words(one: SentenceLabels) -> int:
    return sum(gold == predicted for gold, predicted in zip(one.gold, one.predicted, strict=True))


def span_formula(sums: Numbers) -> Numbers:
    """F1 of each row of (correct, predicted, gold)."""
    return np.array([f1(*row) for row in sums.tolist()])


def estimate(counts: Numbers, resamples: int, formula: Any) -> Estimate:
    """The figure of summed counts (sentences, counts), with its interval; formula: sums (trials, counts) -> (trials,)."""
    value = float(formula(counts.sum(0, keepdims=True))[0])
    return Estimate(value, *interval(formula(bootstrap_sums(counts, resamples, SEED)))) if resamples else Estimate(value)


def score(correct: int, predicted: int, gold: int) -> LabelScore:
    precision, recall = correct / predicted if predicted else 0.0, correct / gold if gold else 0.0
    return LabelScore(precision, recall, f1(correct, predicted, gold), gold)


def label_scores(sentences: Sequence[SentenceLabels]) -> dict[str, LabelScore]:
    """Of every label that occurs, the most frequent first."""
    pairs = Counter(pair for one in sentences for pair in zip(one.gold, one.predicted, strict=True))
    gold, predicted = Counter[str](), Counter[str]()
    for (right, chosen), count in pairs.items():
        gold[right] += count
        predicted[chosen] += count
    names = sorted(gold | predicted, key=lambda name: (-gold[name], name))
    return {name: score(pairs[name, name], predicted[name], gold[name]) for name in names}


def span_scores(sentences: Sequence[SentenceLabels]) -> dict[str, LabelScore]:
    """Of every label of spans, the most frequent first."""
    names = sorted({label[2:] for one in sentences for side in one for label in side if "-" in label})
    scores = {}
    for name in names:
        only = [[[label if label[2:] == name else "O" for label in side] for side in one] for one in sentences]
        counts = [count_spans(predicted, gold) for gold, predicted in only]
        scores[name] = score(*(sum(column) for column in zip(*counts, strict=True)))
    return dict(sorted(scores.items(), key=lambda item: (-item[1].gold, item[0])))


def baseline_accuracies(train: Sequence[TaggedSentence], test: Sequence[TaggedSentence]) -> dict[str, float]:
    """The accuracy of the most frequent label of the training data, and of the most frequent label of each word, with the
    former for words that do not occur there."""
    total = Counter(label for sentence in train for label in sentence.labels)
    by_word: dict[str, Counter[str]] = {}
    for sentence in train:
        for word, label in zip(sentence.words, sentence.labels, strict=True):
            by_word.setdefault(word, Counter())[label] += 1
    most = most_frequent(total)
    best = {word: most_frequent(counts) for word, counts in by_word.items()}
    pairs = [pair for sentence in test for pair in zip(sentence.words, sentence.labels, strict=True)]
    return {
        "the most frequent label": sum(label == most for _, label in pairs) / max(len(pairs), 1),
        "the most frequent label of each word": sum(label == best.get(word, most) for word, label in pairs)
        / max(len(pairs), 1),
    }


def most_frequent(counts: Counter[str]) -> str:
    return min(counts, key=lambda label: (-counts[label], label))
