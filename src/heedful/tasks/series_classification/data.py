"""The data of the classification of series: the series of each split as tensors, and batches of them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.data.labeled_series import LabeledSeriesConfig, SeriesSet, check_split, find_split_file, read_split
from heedful.data.report import CheckReport
from heedful.data.sources import refuse_streams
from heedful.data.splits import SPLITS
from heedful.errors import DataError, nearest
from heedful.tasks.base import ExampleFile, RunConfig, Tokenizers
from heedful.tasks.predictor import missing_split_error
from heedful.tasks.series_classification.config import SeriesClassificationConfig


class SeriesBatch(NamedTuple):
    vectors: Tensor  # (rows, time, variables), 0 after the end
    mask: Tensor  # (rows, time), True for real steps
    labels: Tensor  # (rows,): index of the label

    def pin(self) -> SeriesBatch:
        return SeriesBatch(*(tensor.pin_memory() for tensor in self))

    def to(self, device: torch.device) -> SeriesBatch:
        return SeriesBatch(*(tensor.to(device, non_blocking=True) for tensor in self))


class EncodedSeries(NamedTuple):
    frames: list[Tensor]  # (steps, variables) each
    labels: NDArray[np.int64]  # (series,): indices of the labels of the task

    def batch(self, chosen: NDArray[np.int64] | Sequence[int]) -> SeriesBatch:
        """The series with these numbers, padded to the longest."""
        frames = [self.frames[at] for at in chosen]
        vectors = torch.nn.utils.rnn.pad_sequence(frames, batch_first=True)  # (rows, time, variables)
        lengths = torch.tensor([len(one) for one in frames])
        mask = torch.arange(vectors.shape[1]) < lengths[:, None]
        return SeriesBatch(vectors, mask, torch.from_numpy(self.labels[np.asarray(chosen)]))


class EncodedSplits(NamedTuple):
    train: EncodedSeries
    valid: EncodedSeries


class LabeledSeriesData:
    def __init__(self, run: RunConfig) -> None:
        self.config: SeriesClassificationConfig = run.task
        self.data: LabeledSeriesConfig = run.data
        self.features = run.model.numeric_inputs

    def check(self) -> CheckReport:
        """Read every file once; report the number of series of each label."""
        refuse_streams(self.files())
        found = ((split, find_split_file(self.data, split)) for split in SPLITS)
        present = [(split, path) for split, path in found if path is not None]
        report = CheckReport(tuple(check_split(self.data, split, path) for split, path in present))
        for split, _ in present:
            self.series(split)
        return report

    def files(self) -> list[Path]:
        found = (find_split_file(self.data, split) for split in SPLITS)
        return list(dict.fromkeys(path for path in found if isinstance(path, Path)))

    def lines(self, side: Literal["source", "target"]) -> Iterator[str]:
        """A series has no text; the vocabulary is that of the labels."""
        return iter(self.config.known_labels if side == "target" else ())

    @property
    def tags(self) -> list[str]:
        return []

    def read(self, split: str) -> SeriesSet:
        path = find_split_file(self.data, split)
        if path is None:
            raise missing_split_error(split)
        return read_split(self.data, path)

    def series(self, split: str) -> EncodedSeries:
        """The series of a split; a label or a column that the task does not have is an error."""
        found = self.read(split)
        labels = self.config.labels if self.config.labels != "auto" else collect_labels(self.read("train"))
        for one in found.series:
            if one.label not in labels:
                close = nearest(one.label, labels)
                raise DataError(
                    f"{one.place} has the label {one.label!r:.40}; expected one of: {', '.join(labels):.200}",
                    hint=f"did you mean {close!r}?" if close else "correct the label, or add it to task.labels",
                )
        order = self.order(found.columns, f"the {split} data")
        frames = [torch.from_numpy(one.frames[:, order]) for one in found.series]
        return EncodedSeries(frames, np.array([labels.index(one.label) for one in found.series], np.int64))

    def order(self, columns: Sequence[str], place: str) -> list[int]:
        """The places of the task's variables among the columns."""
        wanted = columns if self.config.variables == "auto" else self.config.variables
        for name in wanted:
            if name not in columns:
                close = nearest(name, [column for column in columns if column not in wanted])
                raise DataError(
                    f"{place} has no column {name!r}; its columns are: {', '.join(columns):.200}",
                    hint=f"did you mean {close!r}?" if close else None,
                )
        if len(wanted) != self.features:
            raise DataError(
                f"{place} has {len(wanted)} columns of numbers; expected model.features = {self.features}",
                hint=f"set model.features = {len(wanted)}, or task.variables",
            )
        return [columns.index(name) for name in wanted]

    def prepare(self, tokenizers: Tokenizers, report: CheckReport) -> EncodedSplits:
        return EncodedSplits(self.series("train"), self.series("valid"))

    def usage_and_limits(self, folder: str) -> tuple[str, str]:
        """A usage example and the limits of the model, for its card."""
        rows = f"[[0.0] * {self.features}] * 20"
        usage = f'classifier = heedful.load("{folder}")\nprint(classifier.predict([{rows}]))  # a list of steps'
        limits = f"A series has at most {self.data.max_length} steps, equally far apart as in the training data"
        return usage, f"{limits}; only the labels of the training data are predicted."


def collect_labels(train: SeriesSet) -> tuple[str, ...]:
    return tuple(sorted({one.label for one in train.series}))


def resolve(run: RunConfig) -> dict[str, object]:
    """Labels and columns of the training data, where they are "auto"."""
    config: SeriesClassificationConfig = run.task
    if "auto" not in (config.labels, config.variables):
        return {}
    data = LabeledSeriesData(run)
    refuse_streams(data.files())
    train = data.read("train")
    labels = collect_labels(train) if config.labels == "auto" else config.labels
    if len(labels) < 2:
        raise DataError(f"the train data has {len(labels)} label{'s' * (len(labels) != 1)}; expected two or more that differ")
    data.order(train.columns, "the train data")
    return {"task.labels": labels, "task.variables": train.columns if config.variables == "auto" else config.variables}


def format_examples(examples: Iterable[Any]) -> ExampleFile:
    """(label, steps) tuples as a table; the steps are a list of vectors, or a dictionary with a list for each column."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    columns: list[str] = []
    for number, example in enumerate(examples, start=1):
        pair = list(example) if isinstance(example, tuple | list) else []
        given = pair[1] if len(pair) == 2 and isinstance(pair[0], str) and pair[0].strip() else None
        steps = as_steps(list(zip(*given.values(), strict=False)) if isinstance(given, Mapping) else given)
        names = [str(name) for name in given] if isinstance(given, Mapping) else columns
        if steps is None or names != columns != [] or (columns and steps.shape[1] != len(columns)):
            expected = f"each of {len(columns)} numbers" if columns else "each a list of numbers"
            raise DataError(f"example {number} is {example!r:.60}; expected a tuple (label, list of steps, {expected})")
        if not columns:
            columns = names or [str(at) for at in range(1, steps.shape[1] + 1)]
            writer.writerow(["sequence", "label", *columns])
        writer.writerows([number, pair[0], *row] for row in steps.tolist())
    return ExampleFile(".csv", out.getvalue(), "file")


def as_steps(given: Any) -> NDArray[np.float32] | None:
    """A list of vectors as an array (steps, variables); None if it is none, or not finite."""
    try:
        steps = np.asarray(given, np.float32)
    except (TypeError, ValueError):
        return None
    return steps if steps.ndim == 2 and steps.size and bool(np.isfinite(steps).all()) else None
