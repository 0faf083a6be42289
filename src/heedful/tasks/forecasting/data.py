"""The data of forecasting: the rows of each split as tensors, and windows of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.data.report import CheckReport
from heedful.data.series import SeriesConfig, SeriesPart, SeriesTable, check_split, find_split_file, read_split
from heedful.data.sources import refuse_streams
from heedful.data.splits import SPLITS
from heedful.errors import ConfigError, DataError, nearest
from heedful.evaluation.tables import counted
from heedful.tasks.base import ExampleFile, RunConfig, Tokenizers, format_rows
from heedful.tasks.forecasting.calendar import calendar_features
from heedful.tasks.forecasting.config import ForecastingConfig
from heedful.tasks.predictor import missing_split_error


class WindowBatch(NamedTuple):
    window: Tensor  # (rows, look_back, variables), as in the data
    calendar: Tensor  # (rows, look_back + horizon, features)
    target: Tensor  # (rows, horizon, variables)

    def pin(self) -> WindowBatch:
        return WindowBatch(*(tensor.pin_memory() for tensor in self))

    def to(self, device: torch.device) -> WindowBatch:
        return WindowBatch(*(tensor.to(device, non_blocking=True) for tensor in self))


class EncodedSeries(NamedTuple):
    """The rows of a split; the targets of its windows begin at row `first` or later."""

    values: Tensor  # (rows, variables)
    calendar: Tensor  # (rows, features)
    first: int
    times: tuple[str, ...]
    look_back: int
    horizon: int

    @property
    def start(self) -> int:
        """The row that the first window begins at."""
        return max(self.first - self.look_back, 0)

    @property
    def own(self) -> Tensor:
        """The rows of the split itself."""
        return self.values[self.first :]

    def __len__(self) -> int:
        return max(len(self.values) - self.start - self.look_back - self.horizon + 1, 0)

    def windows(self, chosen: NDArray[np.int64] | Sequence[int]) -> WindowBatch:
        """The windows with these numbers, from 0."""
        at = torch.as_tensor(np.asarray(chosen))[:, None] + self.start  # (rows, 1)
        before = at + torch.arange(self.look_back)
        after = at + self.look_back + torch.arange(self.horizon)
        both = torch.cat((before, after), 1)
        return WindowBatch(self.values[before], self.calendar[both], self.values[after])


class SeriesSplits(NamedTuple):
    train: EncodedSeries
    valid: EncodedSeries


class SeriesData:
    def __init__(self, run: RunConfig) -> None:
        self.config: ForecastingConfig = run.task
        self.data: SeriesConfig = run.data

    def check(self) -> CheckReport:
        """Read every file once; report the rows of each split."""
        refuse_streams(self.files())
        least = self.config.look_back + self.config.horizon
        found = ((split, find_split_file(self.data, split)) for split in SPLITS)
        report = CheckReport(tuple(check_split(self.data, split, file, least) for split, file in found if file is not None))
        for split in SPLITS:
            if find_split_file(self.data, split) is not None:
                self.series(split)
        return report

    def files(self) -> list[Path]:
        found = [file.path for split in SPLITS if (file := find_split_file(self.data, split)) is not None]
        return list(dict.fromkeys(path for path in found if isinstance(path, Path)))

    def lines(self, side: Literal["source", "target"]) -> Iterator[str]:
        """A series has no text; the vocabulary is that of the names of its variables, each twice: words that occur once are
        left out of a vocabulary."""
        yield from self.part("train").table.names * 2 if side == "target" else ()

    @property
    def tags(self) -> list[str]:
        return []

    def part(self, split: str) -> SeriesPart:
        file = find_split_file(self.data, split)
        if file is None:
            raise missing_split_error(split)
        return read_split(self.data, file)[0]

    def series(self, split: str) -> EncodedSeries:
        """The rows of a split of the run's data."""
        part = self.part(split)
        encoded = self.encode(part.table, f"the {split} data", part.first)
        if not len(encoded):
            rows, horizon = len(part.table.values) - part.first, self.config.horizon
            raise DataError(f"the {split} data has {rows:,} rows; expected at least task.horizon = {horizon:,}")
        return encoded

    def encode(self, table: SeriesTable, place: str, first: int = 0) -> EncodedSeries:
        """The variables of a table as tensors; a missing column is an error."""
        wanted = table.names if self.config.variables == "auto" else self.config.variables
        for name in wanted:
            if name not in table.names:
                close = nearest(name, table.names)
                raise DataError(
                    f"{place} has no column {name!r}; its columns are: {', '.join(table.names)}",
                    hint=f"did you mean {close!r}?" if close else None,
                )
        values = table.values[:, [table.names.index(name) for name in wanted]]
        calendar = calendar_features(table.times, self.config.covariates, len(values))
        sizes = self.config.look_back, self.config.horizon
        return EncodedSeries(torch.from_numpy(values.copy()), torch.from_numpy(calendar), first, table.times, *sizes)

    def prepare(self, tokenizers: Tokenizers, report: CheckReport) -> SeriesSplits:
        return SeriesSplits(self.series("train"), self.series("valid"))

    def usage_and_limits(self, folder: str) -> tuple[str, str]:
        """A usage example and the limits of the model, for its card."""
        names, rows = self.config.known_variables, self.config.look_back
        columns = dict.fromkeys(names, f"[0.0] * {rows}")
        if self.data.time is not None:
            columns = {self.data.time: f'[f"{{2000 + year}}-01-01" for year in range({rows})]', **columns}
        table = ", ".join(f"{name!r}: {column}" for name, column in columns.items())
        usage = f'forecaster = heedful.load("{folder}")\nprint(forecaster.forecast({{{table}}}).text)'
        limits = f"It looks back {rows} steps, assumes steps of the same length as in the training data, and knows no other"
        return usage, f"{limits} variables than: {', '.join(names)}."


def resolve(run: RunConfig) -> dict[str, object]:
    """The columns of the training data, where task.variables is "auto". Only then the size of a patch of all is known."""
    if run.task.variables != "auto":
        return {}
    data = SeriesData(run)
    refuse_streams(data.files())
    names = data.part("train").table.names
    given, expected = run.model.numeric_inputs, run.task.model_copy(update={"variables": names}).features
    if given != expected:
        covariates = ", and two numbers for each of task.covariates" if run.task.covariates else ""
        terms = f"a patch has {run.task.patch} steps of {counted(len(names), 'variables')}{covariates}"
        raise ConfigError(
            f"model.features: given {given}, expected {expected}, since {terms}", hint=f"set model.features={expected}"
        )
    return {"task.variables": names}


def format_examples(examples: Iterable[Any]) -> ExampleFile:
    """Rows as dictionaries, {"date": "2024-05-31", "load": 1.5}, as a comma-separated table."""
    return format_rows(examples, "a row")
