"""A trained classifier of series: heedful.load("runs/toys-toy-gaits").predict([[[0.1, …], …]]) -> ["walking"]."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from heedful.data.delimited import line_cells
from heedful.data.input_lines import CHUNK_LINES, checked_chunks, refuse_too_long
from heedful.data.labeled_series import find_split_file, read_split, refuse_long
from heedful.data.samples import Sample
from heedful.data.series import column_values, join_tables, parse_cell, parse_columns, refuse_unequal, table_text
from heedful.data.sources import find_path
from heedful.errors import ConfigError, DataError, lookup
from heedful.evaluation.labels import softmax
from heedful.evaluation.tables import counted
from heedful.search import SearchConfig
from heedful.tasks.classification.report import ClassificationReport
from heedful.tasks.encoded_example import Decoded, EncodedExample
from heedful.tasks.forced import ForcedBatch
from heedful.tasks.labels import decode_choices, refuse_search
from heedful.tasks.predictor import ExampleInput, Loader, Predictor, Searcher, ValidationResult, check_split
from heedful.tasks.series_classification.command import EvaluateOptions
from heedful.tasks.series_classification.config import SeriesClassificationConfig
from heedful.tasks.series_classification.data import EncodedSeries, LabeledSeriesData, SeriesBatch, as_steps
from heedful.tasks.series_classification.evaluate import figures_of, logits_of, report
from heedful.tasks.series_classification.forced import encode_series, series_batches
from heedful.tasks.series_classification.model import SeriesModel

Frames = NDArray[np.float32]  # (steps, variables)
Input = Any  # a comma-separated table or a JSON object as text, a dictionary of columns, or a list of steps


class SeriesPrediction(NamedTuple):
    """The probability of each label of a series."""

    steps: int
    probabilities: dict[str, float]
    label: str  # the most probable

    @property
    def text(self) -> str:
        return self.label

    def rows(self) -> list[str]:
        return [self.label]

    def to_dict(self) -> dict[str, Any]:
        return {"label": self.label, "probabilities": self.probabilities, "steps": self.steps}


class SeriesClassifier(Predictor):
    """A trained model that classifies series. A series is a list of steps, each a list of numbers, or a table."""

    phases: ClassVar[tuple[str, ...]] = ("training step", "prediction")
    reads_text: ClassVar[bool] = False

    @property
    def classifier(self) -> SeriesModel:
        """The model with its head."""
        return cast(SeriesModel, self.model)

    @property
    def config(self) -> SeriesClassificationConfig:
        config: SeriesClassificationConfig = self.run.task
        return config

    @property
    def labeled(self) -> LabeledSeriesData:
        return LabeledSeriesData(self.run)

    @property
    def input_names(self) -> Sequence[str]:
        return ["series"]

    def predict(self, inputs: Any, **options: Any) -> Any:
        """The most probable label of one table, or of each of a list of series."""
        return self.apply(inputs, lambda prediction: prediction.text, **options)

    def is_one(self, inputs: Any) -> bool:
        return isinstance(inputs, str | Mapping)

    def predict_proba(self, inputs: Any) -> Any:
        """The probability of each label, for one series, or for each of a list of series."""
        return self.apply(inputs, lambda prediction: prediction.probabilities)

    def predictions(self, texts: Iterable[Input], **options: Any) -> Iterator[SeriesPrediction]:
        if options:
            raise ConfigError(f"given {next(iter(options))!r}, but the classification of series has no options")
        remaining = iter(texts)
        return self.predict_windows(iter(lambda: list(islice(remaining, CHUNK_LINES)), []))

    def predict_chunks(
        self,
        chunks: Iterable[Sequence[str]],
        config: SearchConfig,
        options: Any,
        unknown: dict[str, int],
        first: int = 1,
    ) -> Iterator[SeriesPrediction]:
        return self.predict_windows(chunks, first)

    def join_lines(self, chunks: Iterable[Sequence[str]]) -> Iterator[Sequence[str]]:
        name = self.run.data.sequence
        return ([one for table in tables for one in split_by_series(table, name)] for tables in join_tables(chunks))

    def predict_windows(self, windows: Iterable[Sequence[Input]], first: int = 1) -> Iterator[SeriesPrediction]:
        """The predictions of each window of series, in order."""
        labels = self.config.known_labels
        for _, found in checked_chunks(windows, self.read_input, first):
            if not found:
                continue
            series = EncodedSeries([torch.from_numpy(one) for one in found], np.zeros(len(found), np.int64))
            for frames, row in zip(found, softmax(logits_of(self.classifier, self.system, series)), strict=True):
                probabilities = dict(zip(labels, row.tolist(), strict=True))
                yield SeriesPrediction(len(frames), probabilities, labels[int(row.argmax())])

    def read_input(self, given: Input, number: int) -> Frames:
        """The steps of an input; DataError if it is no series."""
        place, names = f"series {number}", self.config.variables
        assert names != "auto", "the columns are known after training"
        if isinstance(given, str):
            for line in given.split("\n"):
                refuse_too_long(line, place)
            self.refuse_path(given, place)
            given = parse_columns(given, place) if given.lstrip().startswith("{") else given
        if isinstance(given, str):
            frames = self.read_table(given, place)
        elif isinstance(given, Mapping):
            frames = self.read_columns(given, place)
        else:
            steps = as_steps(given)
            if steps is None or steps.shape[1] != len(names):
                rows = steps if steps is not None else given if isinstance(given, Sequence) else ()
                for at, row in enumerate(rows, start=1):
                    if isinstance(row, list | tuple | np.ndarray) and len(row) != len(names):
                        sizes = f"{counted(len(row), 'numbers')}; expected {len(names)}: {', '.join(names):.200}"
                        raise DataError(f"{place}, step {at} has {sizes}")
                raise DataError(f"{place} is {given!r:.60}; expected a list of steps, each of {len(names)} finite numbers")
            frames = steps
        refuse_long(self.run.data, len(frames), place)
        return frames

    def read_table(self, text: str, place: str) -> Frames:
        """The steps of a comma-separated table of one series; other columns than the variables are left out."""
        columns: list[str] = []
        rows: list[list[float]] = []
        order: list[int] = []
        name, names = self.run.data.sequence, set()
        for number, line in enumerate(text.split("\n"), start=1):
            if not line.strip():
                continue
            where = f"{place} line {number}"
            cells = line_cells(line.encode(), number, where)
            if not columns:
                columns, order = cells, self.labeled.order(cells, place)
                continue
            if len(cells) != len(columns):
                raise DataError(f"{where} has {counted(len(cells), 'columns')}; expected {len(columns)}, as in the first line")
            rows.append([parse_cell(cells[at], columns[at], where) for at in order])
            names.update([cells[columns.index(name)]] if name in columns else [])
            if len(names) > 1:
                raise DataError(f"{where} has another {name!r} than the line before; expected the rows of one series")
        if not rows:
            raise DataError(f"{place} has no rows; expected a line for each step")
        return np.array(rows, np.float32)

    def read_columns(self, columns: Mapping[str, Any], place: str) -> Frames:
        """The steps of columns of equal length."""
        names = self.config.variables
        refuse_unequal(columns, names, place)
        if not len(columns[names[0]]):
            raise DataError(f"{place} has empty lists; expected at least one step")
        return column_values(columns, names, place)

    def example_inputs(self, split: str) -> Iterator[ExampleInput]:
        """The series of a split as tables, with their labels."""
        if find_split_file(self.run.data, split) is None:
            return
        series = self.labeled.series(split)
        for frames, label in zip(series.frames, series.labels, strict=True):
            yield ExampleInput(table_text(self.config.variables, frames.numpy()), self.config.known_labels[label])

    def sample_texts(self, split: str) -> Iterator[Sample]:
        """The series of a split as tables, with their labels."""
        return (Sample(None, one.text, label=one.expected) for one in self.example_inputs(split))

    def read_samples(self, path: Path) -> Iterator[Sample]:
        """The series of a table in the format of the run's data, with their labels."""
        found = read_split(self.run.data, find_path(str(path)))
        order = self.labeled.order(found.columns, str(path))
        for one in found.series:
            lookup(one.label, dict.fromkeys(self.config.known_labels), "label")
            yield Sample(None, table_text(self.config.variables, one.frames[:, order]), label=one.label)

    def forced_batches(self, samples: Iterable[Sample]) -> Iterator[ForcedBatch]:
        """Missing labels are predicted."""
        known, given = self.config.known_labels, list(samples)
        frames = [torch.from_numpy(self.read_input(one.target, at)) for at, one in enumerate(given, start=1)]
        labels = [known.index(one.label or self.predict(one.target)) for one in given]
        return series_batches(self.classifier, self.system, EncodedSeries(frames, np.array(labels, np.int64)))

    def encode_example(self, text: str, target: str | None = None, config: SearchConfig | None = None) -> EncodedExample:
        """A series, as a table or the path of one, with its label; its tokens are its steps. target: a label, default: the
        predicted one."""
        refuse_search(config)
        table, known = self.one_input(text), self.config.known_labels
        frames = torch.from_numpy(self.read_input(table, 1))
        label = self.predict(table) if target is None else target
        lookup(label, dict.fromkeys(known), "label")
        return encode_series(self.classifier, frames, label, known, self.system.device)

    def decode_example(
        self, example: EncodedExample, prefix: Sequence[int] = (), config: SearchConfig | None = None
    ) -> Decoded:
        """The most probable label."""
        best, total = decode_choices(self.classifier, example, prefix)
        return Decoded(self.config.known_labels[best[0]], best, total, total)

    def replace_input(self, example: EncodedExample, text: str) -> EncodedExample:
        return self.encode_example(text, example.label)

    def evaluate(self, split: str = "test") -> dict[str, float]:
        """The metrics of a validation on a split of the run's data."""
        check_split(self.run.data, split)
        series = self.labeled.series(split)
        figures = figures_of(logits_of(self.classifier, self.system, series), series)
        return {name: figure.statistics.value() for name, figure in figures.items()}

    def report(self, split: str | None, options: EvaluateOptions, *, load: Loader, search: Searcher) -> ClassificationReport:
        name = split or "test"
        series = self.labeled.series(name)
        train = partial(self.labeled.series, "train")
        return report(self.classifier, self.system, series, self.config.known_labels, name, options, train)

    def validate(self) -> ValidationResult:
        return ValidationResult(self.evaluate("valid"), None, None, {})

    def training_losses(self, count: int) -> Iterator[Callable[[], Tensor]]:
        """Of the first `count` series of the training data."""
        series, size = self.labeled.series("train"), self.run.data.batch
        most = min(count, len(series.labels))
        for at in range(0, most, size):
            batch = series.batch(range(at, min(at + size, most))).to(self.system.device)
            yield partial(series_losses, self.classifier, batch)

    def unknown_words(self, text: str) -> list[str]:
        return []  # a series has none


def series_losses(model: SeriesModel, batch: SeriesBatch) -> Tensor:
    """-log p of the label of each series, (series,)."""
    return functional.cross_entropy(model(batch.vectors, batch.mask).float(), batch.labels, reduction="none")


def split_by_series(table: str, name: str) -> list[str]:
    """A table for each series of a comma-separated table with the column `name`; without one, the table is one series. What
    cannot be split is left as it is: reading it raises the error."""
    header, *lines = table.split("\n")
    try:
        at = line_cells(header.encode(), 1, "").index(name)
        keys = [line_cells(line.encode(), 2, "")[at] for line in lines]
    except (DataError, ValueError, IndexError):
        return [table]
    groups = groupby(zip(keys, lines, strict=True), key=lambda pair: pair[0])
    return ["\n".join([header, *(line for _, line in group)]) for _, group in groups] or [table]
