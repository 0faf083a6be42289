"""`heed evaluate` for classification: metrics with confidence intervals, labels, confusion matrix, baselines, another run."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from heedful.data.labeled import Example, find_split_file
from heedful.errors import ConfigError
from heedful.evaluation import labels as metrics
from heedful.evaluation.baselines import BASELINES, require_scikit_learn
from heedful.evaluation.metrics import MIN_RESAMPLES, SEED
from heedful.evaluation.resampling import Numbers, bootstrap_sums, interval
from heedful.evaluation.significance import Comparison, compare_statistics
from heedful.evaluation.tables import table
from heedful.storage.writing import output_file
from heedful.tasks.classification.command import EvaluateOptions
from heedful.tasks.classification.evaluate import figures_of, finite_logits
from heedful.tasks.predictor import Loader, check_split, missing_split_error

if TYPE_CHECKING:
    from heedful.tasks.classification.predictor import Classifier

MAX_MATRIX = 20  # labels of a confusion matrix that is printed as text


@dataclass(frozen=True)
class ClassificationReport:
    split: str
    examples: int
    figures: dict[str, float]
    intervals: dict[str, tuple[float, float]]  # 95%, by a bootstrap over examples; empty: none was computed
    labels: dict[str, metrics.LabelRow]
    confusion: list[list[int]] | None  # row: label, column: predicted label; None: several labels per text
    baselines: dict[str, dict[str, float]] = field(default_factory=dict)
    against: Path | None = None  # checkpoint of the other run
    comparison: dict[str, Comparison] = field(default_factory=dict)  # with the other run, by metric
    warnings: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        result: dict[str, Any] = {
            "split": self.split,
            "examples": self.examples,
            "figures": self.figures,
            "intervals": {name: list(bounds) for name, bounds in self.intervals.items()},
            "labels": {name: row._asdict() for name, row in self.labels.items()},
        }
        if self.confusion is not None:
            result["confusion"] = self.confusion
        if self.baselines:
            result["baselines"] = self.baselines
        if self.against is not None:
            result["against"] = str(self.against)
            result["comparison"] = {name: asdict(one) for name, one in self.comparison.items()}
        return result

    def text(self) -> str:
        parts = [f"{self.examples:,} examples of {self.split}", self.figure_table(), self.label_table()]
        if self.confusion is not None:
            parts.append(self.confusion_table(self.confusion))
        for name, one in self.comparison.items():
            parts.append(
                f"{readable(name)}: {one.difference:+.4f} against {self.against}, "
                f"95% interval {one.low:+.4f} to {one.high:+.4f}, "
                f"p {one.p_bootstrap:.3f} (paired bootstrap, one-sided), "
                f"{one.p_randomization:.3f} (approximate randomization, two-sided): {one.verdict}"
            )
        return "\n\n".join(parts)

    def figure_table(self) -> str:
        rows = [("figure", "value", "95% interval")]
        for name, value in self.figures.items():
            low, high = self.intervals.get(name, (None, None))
            rows.append((readable(name), f"{value:.4f}", "" if low is None else f"{low:.4f} to {high:.4f}"))
        for baseline, values in self.baselines.items():
            rows += [(f"{readable(name)}, {baseline}", f"{value:.4f}", "") for name, value in values.items()]
        return table(rows)

    def label_table(self) -> str:
        rows = [
            (name, f"{row.precision:.4f}", f"{row.recall:.4f}", f"{row.f1:.4f}", f"{row.examples:,}")
            for name, row in self.labels.items()
        ]
        return table([("label", "precision", "recall", "F1", "examples"), *rows])

    def confusion_table(self, matrix: list[list[int]]) -> str:
        if len(matrix) > MAX_MATRIX:
            return f"confusion matrix of {len(matrix)} labels: use --json"
        rows = [[name, *(f"{count:,}" for count in row)] for name, row in zip(self.labels, matrix, strict=True)]
        return table([["label \\ predicted", *self.labels], *rows], width=10_000)


def readable(name: str) -> str:
    return {"macro_f1": "macro F1", "micro_f1": "micro F1"}.get(name, name.replace("_", " "))


def report(classifier: Classifier, split: str, options: EvaluateOptions, *, load: Loader) -> ClassificationReport:
    if 0 < options.bootstrap < MIN_RESAMPLES:
        raise ConfigError(f"--bootstrap: given {options.bootstrap}, expected 0 or at least {MIN_RESAMPLES}")
    if options.baselines:
        require_scikit_learn()
    config, names = classifier.run.task, classifier.run.task.labels
    other = None if options.against is None else type(classifier).of(load(options.against))
    examples = read_split(classifier, split)
    if other is not None:
        refuse_other_data(classifier, other, examples, split)
    with output_file(options.output or Path(os.devnull)) as file:  # opened before the work, so that errors come early
        logits, figures = evaluate_on(classifier, examples)
        file.writelines(f"{line}\n" for line in prediction_lines(classifier, examples, logits))
    gold = metrics.as_sets([tuple(names.index(label) for label in example.labels) for example in examples], len(names))
    predicted = (
        metrics.sigmoid(logits) > metrics.THRESHOLD if config.multi_label else metrics.one_hot(logits.argmax(1), len(names))
    )
    confusion = None
    if not config.multi_label:
        confusion = metrics.confusion_matrix(gold.argmax(1), predicted.argmax(1), len(names)).tolist()
    comparison = {}
    if other is not None:
        _, others = evaluate_on(other, examples)
        comparison = {
            name: compare_statistics(name, others[name].statistics, figure.statistics, higher_is_better=figure.higher_is_better)
            for name, figure in figures.items()
        }
    return ClassificationReport(
        split,
        len(examples),
        {name: figure.statistics.value() for name, figure in figures.items()},
        intervals(figures, options.bootstrap),
        dict(zip(names, metrics.label_rows(gold, predicted), strict=True)),
        confusion,
        score_baselines(classifier, examples, gold) if options.baselines else {},
        None if other is None else other.checkpoint,
        comparison,
    )


def read_split(classifier: Classifier, split: str) -> list[Example]:
    """The examples of a split of the run's data."""
    check_split(classifier.run.data, split)
    file = find_split_file(classifier.run.data, split)
    if file is None:
        raise missing_split_error(split)
    return classifier.labeled.examples(file)


def evaluate_on(classifier: Classifier, examples: Sequence[Example]) -> tuple[Numbers, dict[str, metrics.Figure]]:
    """The logits (examples, labels) and the figures."""
    encoded = classifier.labeled.encode(examples, classifier.system.target_tokenizer)
    logits = finite_logits(classifier.classifier, classifier.system, classifier.labeled, encoded)
    return logits, figures_of(logits, encoded.labels, multi_label=classifier.run.task.multi_label)


def intervals(figures: Mapping[str, metrics.Figure], resamples: int) -> dict[str, tuple[float, float]]:
    """The 95% interval of each figure; the same resamples for all."""
    if not resamples:
        return {}
    sums = bootstrap_sums(np.hstack([figure.statistics.rows for figure in figures.values()]), resamples, SEED)
    ends = np.cumsum([figure.statistics.rows.shape[1] for figure in figures.values()])[:-1]
    parts = zip(figures.items(), np.split(sums, ends, axis=1), strict=True)
    return {name: interval(figure.statistics.bootstrap_values(part)) for (name, figure), part in parts}


def baseline_figures(
    predicted: Mapping[str, metrics.Indices], gold: metrics.Indices, count: int
) -> dict[str, dict[str, float]]:
    """Accuracy and macro F1 of each baseline from the labels that it predicts; count: of labels."""
    return {name: label_figures(labels, gold, count) for name, labels in predicted.items()}


def label_figures(predicted: metrics.Indices, gold: metrics.Indices, count: int) -> dict[str, float]:
    figures = metrics.single_label_figures(metrics.one_hot(predicted, count).astype(float), gold)
    return {name: figures[name].statistics.value() for name in ("accuracy", "macro_f1")}


def most_frequent_label(train: metrics.Indices, tested: int, count: int) -> metrics.Indices:
    """The most frequent label of the training data, for each of the tested examples."""
    return np.full(tested, np.bincount(train, minlength=count).argmax())


def prediction_lines(classifier: Classifier, examples: Sequence[Example], logits: Numbers) -> list[str]:
    """A line of JSON for each example."""
    lines = []
    for example, predicted in zip(examples, classifier.label(logits, [e.texts for e in examples]), strict=True):
        several = classifier.run.task.multi_label
        chosen = list(predicted.labels) if several else predicted.text
        gold = list(example.labels) if several else example.labels[0]
        lines.append(
            json.dumps({"gold": gold, "predicted": chosen, "probabilities": predicted.probabilities}, ensure_ascii=False)
        )
    return lines


def refuse_other_data(classifier: Classifier, other: Classifier, examples: Sequence[Example], split: str) -> None:
    """Raise unless the other run has the same labels and the same examples in this split."""
    mine, theirs = classifier.run.task, other.run.task
    folder = other.checkpoint.parent.parent
    if set(mine.labels) != set(theirs.labels) or mine.multi_label != theirs.multi_label:
        raise ConfigError(f"--against: {folder} predicts the labels {list(theirs.labels)}, expected {list(mine.labels)}")
    if read_split(other, split) != examples:
        raise ConfigError(f"--against: the {split} data of {folder} differ from those of the evaluated run; expected the same")


def score_baselines(classifier: Classifier, examples: Sequence[Example], gold: Any) -> dict[str, dict[str, float]]:
    """The accuracy, or exact match, and macro F1 of every baseline, fitted on the run's training data."""
    names, one_label = classifier.run.task.labels, not classifier.run.task.multi_label
    train = read_split(classifier, "train")
    texts, tested = ([" ".join(example.texts) for example in several] for several in (train, examples))
    given = metrics.as_sets([tuple(names.index(label) for label in example.labels) for example in train], len(names))
    scored = {}
    for name, baseline in BASELINES.items():
        predicted = baseline(texts, given, tested, one_label=one_label)
        scored[name] = {
            "accuracy" if one_label else "exact_match": float((predicted == gold).all(1).mean()),
            "macro_f1": metrics.f1_statistics(gold, predicted, metrics.macro_f1).value(),
        }
    return scored
