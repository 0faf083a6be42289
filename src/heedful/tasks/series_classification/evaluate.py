"""Logits of a classifier of series, the figures of a validation, and the report of `heed evaluate`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from heedful.errors import ConfigError
from heedful.evaluation import labels as metrics
from heedful.evaluation.metrics import MIN_RESAMPLES
from heedful.evaluation.resampling import Numbers
from heedful.nn.model import inference_context
from heedful.storage.writing import output_file
from heedful.tasks.classification.report import ClassificationReport, baseline_figures, intervals, most_frequent_label
from heedful.tasks.series_classification.command import EvaluateOptions
from heedful.tasks.series_classification.data import EncodedSeries
from heedful.tasks.series_classification.model import SeriesModel
from heedful.tasks.system import System

BATCH_STEPS = 2**13  # steps at a time, padding included


def logits_of(model: SeriesModel, system: System, series: EncodedSeries) -> Numbers:
    """(series, labels), in batches of similar length; an error if they are not finite."""

    def batch_logits(chosen: list[int]) -> Numbers:
        batch = series.batch(chosen).to(system.device)
        return model(batch.vectors, batch.mask).double().cpu().numpy()

    with inference_context(model):
        rows = system.map_batches(batch_logits, [len(frames) for frames in series.frames], BATCH_STEPS)
    logits = np.array(rows).reshape(-1, model.head.out_features)
    if not np.isfinite(logits).all():
        raise system.nonfinite_error(f"series {int(np.flatnonzero(~np.isfinite(logits).all(1))[0]) + 1}")
    return logits


def figures_of(logits: Numbers, series: EncodedSeries) -> dict[str, metrics.Figure]:
    """The figures of the metrics of a validation."""
    return metrics.single_label_figures(logits, series.labels)


def report(
    model: SeriesModel,
    system: System,
    series: EncodedSeries,
    names: Sequence[str],
    split: str,
    options: EvaluateOptions,
    train: Callable[[], EncodedSeries],
) -> ClassificationReport:
    """train: reads the training data, for baselines."""
    if 0 < options.bootstrap < MIN_RESAMPLES:
        raise ConfigError(f"--bootstrap: given {options.bootstrap}, expected 0 or at least {MIN_RESAMPLES}")
    with output_file(options.output or Path(os.devnull)) as file:  # opened before the work, so that errors come early
        logits = logits_of(model, system, series)
        for gold, row in zip(series.labels.tolist(), metrics.softmax(logits), strict=True):
            probabilities = dict(zip(names, row.tolist(), strict=True))
            line = {"gold": names[gold], "predicted": names[int(row.argmax())], "probabilities": probabilities}
            file.write(f"{json.dumps(line, ensure_ascii=False)}\n")
    figures, predicted = figures_of(logits, series), logits.argmax(1)
    one_hot = [metrics.one_hot(np.asarray(chosen, np.int64), len(names)) for chosen in (series.labels, predicted)]
    return ClassificationReport(
        split,
        len(series.labels),
        {name: figure.statistics.value() for name, figure in figures.items()},
        intervals(figures, options.bootstrap),
        dict(zip(names, metrics.label_rows(one_hot[0], one_hot[1]), strict=True)),
        metrics.confusion_matrix(series.labels, predicted, len(names)).tolist(),
        score_baselines(train(), series, len(names)) if options.baselines else {},
    )


def score_baselines(train: EncodedSeries, tested: EncodedSeries, count: int) -> dict[str, dict[str, float]]:
    predicted = most_frequent_label(train.labels, len(tested.labels), count)
    return baseline_figures({"the most frequent label": predicted}, tested.labels, count)
