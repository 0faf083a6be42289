"""`heed evaluate` for image classification: metrics with confidence intervals, labels, confusion matrix, baselines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from heedful.errors import ConfigError
from heedful.evaluation import labels as metrics
from heedful.evaluation.metrics import MIN_RESAMPLES
from heedful.storage.writing import output_file
from heedful.tasks.classification.report import ClassificationReport, baseline_figures, intervals, most_frequent_label
from heedful.tasks.image_classification.command import EvaluateOptions
from heedful.tasks.image_classification.data import ImageSet
from heedful.tasks.image_classification.evaluate import figures_of, logits_of

if TYPE_CHECKING:
    from heedful.tasks.image_classification.predictor import ImageClassifier

CHUNK = 1024  # images at a time


def report(classifier: ImageClassifier, split: str, options: EvaluateOptions) -> ClassificationReport:
    if 0 < options.bootstrap < MIN_RESAMPLES:
        raise ConfigError(f"--bootstrap: given {options.bootstrap}, expected 0 or at least {MIN_RESAMPLES}")
    names, images = classifier.run.task.labels, classifier.split_images(split)
    with output_file(options.output or Path(os.devnull)) as file:  # opened before the work, so that errors come early
        logits = logits_of(classifier.classifier, classifier.system, images)
        for gold, row in zip(images.labels.tolist(), metrics.softmax(logits), strict=True):
            probabilities = dict(zip(names, row.tolist(), strict=True))
            line = {"gold": names[gold], "predicted": names[int(row.argmax())], "probabilities": probabilities}
            file.write(f"{json.dumps(line, ensure_ascii=False)}\n")
    figures, predicted = figures_of(logits, images), logits.argmax(1)
    one_hot = [metrics.one_hot(np.asarray(chosen, np.int64), len(names)) for chosen in (images.labels, predicted)]
    return ClassificationReport(
        split,
        len(images.labels),
        {name: figure.statistics.value() for name, figure in figures.items()},
        intervals(figures, options.bootstrap),
        dict(zip(names, metrics.label_rows(one_hot[0], one_hot[1]), strict=True)),
        metrics.confusion_matrix(images.labels, predicted, len(names)).tolist(),
        score_baselines(classifier.split_images("train"), images, len(names)) if options.baselines else {},
    )


def score_baselines(train: ImageSet, tested: ImageSet, count: int) -> dict[str, dict[str, float]]:
    """The figures of each baseline; count: of labels."""
    predicted = {
        "the most frequent label": most_frequent_label(train.labels, len(tested.labels), count),
        "the nearest mean image": nearest_mean(train, tested, count),
    }
    return baseline_figures(predicted, tested.labels, count)


def nearest_mean(train: ImageSet, tested: ImageSet, count: int) -> NDArray[np.int64]:
    """The label whose mean training image is nearest by the distance of the pixels."""
    sums, images = np.zeros((count, train.pixels[0].size)), np.bincount(train.labels, minlength=count)
    for rows, pixels in chunks_of(train):
        np.add.at(sums, train.labels[rows], pixels)
    means = sums / np.maximum(images, 1)[:, None]  # (labels, pixels)
    norms = np.where(images > 0, (means**2).sum(1) / 2, np.inf)  # a label without training images is not predicted
    found: list[NDArray[np.int64]] = [(pixels @ means.T - norms).argmax(1) for _, pixels in chunks_of(tested)]
    return np.concatenate(found)


def chunks_of(images: ImageSet) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """The pixels of some images at a time, (images, pixels)."""
    for at in range(0, len(images.rows), CHUNK):
        rows = slice(at, at + CHUNK)
        chosen = images.pixels[images.rows[rows]]
        yield rows, chosen.reshape(len(chosen), -1).astype(np.float64)
