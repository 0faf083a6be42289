"""`heed evaluate` for image classification: metrics with confidence intervals, labels, confusion matrix."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from heedful.errors import ConfigError
from heedful.evaluation import labels as metrics
from heedful.evaluation.metrics import MIN_RESAMPLES
from heedful.storage.writing import output_file
from heedful.tasks.classification.report import ClassificationReport, intervals
from heedful.tasks.image_classification.command import EvaluateOptions
from heedful.tasks.image_classification.evaluate import figures_of, logits_of

if TYPE_CHECKING:
    from heedful.tasks.image_classification.predictor import ImageClassifier


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
    )
