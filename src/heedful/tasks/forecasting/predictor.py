"""A trained forecaster: heedful.load("runs/forecasting-etth1-96").forecast({"date": […], "OT": […]})."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple, cast, overload

import torch
from torch import Tensor

from heedful.data.input_lines import checked_chunks, chunk_lines, refuse_too_long
from heedful.data.series import (
    SeriesTable,
    column_values,
    find_split_file,
    join_tables,
    parse_columns,
    parse_table,
    parse_time,
    refuse_disorder,
    refuse_unequal,
    table_text,
)
from heedful.errors import ConfigError, DataError, lookup
from heedful.evaluation.forecasts import baselines
from heedful.evaluation.tables import counted
from heedful.nn.model import inference_context
from heedful.search import SearchConfig
from heedful.tasks.encoded_example import EncodedExample
from heedful.tasks.forecasting.calendar import calendar_features, next_times, season_of
from heedful.tasks.forecasting.command import EvaluateOptions, PredictOptions
from heedful.tasks.forecasting.config import ForecastingConfig
from heedful.tasks.forecasting.data import EncodedSeries, SeriesData, WindowBatch
from heedful.tasks.forecasting.evaluate import ForecastReport, evaluate, quantile_tensor, standardized_windows
from heedful.tasks.forecasting.forced import encode_window
from heedful.tasks.forecasting.model import ForecastingModel, forecast_losses
from heedful.tasks.predictor import ExampleInput, Loader, Predictor, Searcher, ValidationResult, check_split

Columns = Mapping[str, Sequence[Any]]  # a list for each column
Input = str | Columns  # a comma-separated table, a JSON object, or the columns themselves
LOSS_WINDOWS = 64  # windows in a batch of `training_losses`
STEP = "step"  # name of the column of the time where the data has none


class Forecast(NamedTuple):
    """The steps that follow a table, and what it was made from: `heedful.inspection.forecast` draws it."""

    time: str  # name of the column of the time
    times: list[str]
    variables: tuple[str, ...]
    values: list[list[float]]  # (horizon, variables)
    quantiles: tuple[float, ...]  # none: the values are the mean
    outputs: list[list[list[float]]]  # (horizon, variables, quantiles)
    history_times: list[str]
    history: list[list[float]]  # (look_back, variables): the window
    baselines: dict[str, list[list[float]]]  # of persistence, seasonal naive and a stored ridge map, (horizon, variables) each
    truth: list[list[float]]  # (horizon, variables) of a forecast of rows that were held out; else empty

    @property
    def columns(self) -> dict[str, list[float]]:
        """The forecasts of each variable, its quantiles as "name 0.9", and the values of rows held out as "name true"."""
        found: dict[str, list[float]] = {}
        for at, name in enumerate(self.variables):
            found[name] = [row[at] for row in self.values]
            for number, quantile in enumerate(self.quantiles):
                found[f"{name} {quantile:g}"] = [row[at][number] for row in self.outputs]
            if self.truth:
                found[f"{name} true"] = [row[at] for row in self.truth]
        return found

    def rows(self) -> list[str]:
        columns, out = self.columns, io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([self.time, *columns])
        for time, *numbers in zip(self.times, *columns.values(), strict=True):
            writer.writerow([time, *(f"{number:.6g}" for number in numbers)])
        return out.getvalue().splitlines()

    @property
    def text(self) -> str:
        return "\n".join(self.rows())

    def to_dict(self) -> dict[str, Any]:
        return {self.time: self.times, **self.columns}


class TableWindow(NamedTuple):
    """A window of a table, and what follows it."""

    values: Tensor  # (look_back, variables)
    calendar: Tensor  # (look_back + horizon, features)
    times: Sequence[str]  # of its rows; none: the data has no column of the time
    following: list[str]  # times of the horizon
    truth: Tensor  # (horizon, variables) of rows that were held out; else (0, variables)


class Forecaster(Predictor):
    """A trained forecasting model.

    >>> forecaster = heedful.Forecaster.load(forecasting_run)
    >>> days = [f"2024-01-{day:02}" for day in range(1, 9)]
    >>> forecaster.forecast({"date": days, "load": [3, 1, 2, 3, 1, 2, 3, 1], "wind": [0] * 8}).times
    ['2024-01-09', '2024-01-10']
    """

    phases: ClassVar[tuple[str, ...]] = ("training step", "prediction")
    reads_text: ClassVar[bool] = False
    has_probabilities: ClassVar[bool] = False

    @property
    def forecaster(self) -> ForecastingModel:
        """The model with its head."""
        return cast(ForecastingModel, self.model)

    @property
    def config(self) -> ForecastingConfig:
        config: ForecastingConfig = self.run.task
        return config

    @property
    def input_names(self) -> Sequence[str]:
        return ["table"]

    @property
    def positions(self) -> int:
        return self.config.positions

    @property
    def series(self) -> SeriesData:
        return SeriesData(self.run)

    def forecast(self, table: Input, *, holdout: bool = False) -> Forecast:
        """The steps after a table: its columns, {"date": […], "load": […]}, or a comma-separated text. holdout: forecast its
        last rows instead, from those before them."""
        (forecast,) = self.predictions([table], holdout=holdout)
        return forecast

    @overload
    def predict(self, inputs: Input, **options: Any) -> str: ...
    @overload
    def predict(self, inputs: Sequence[Input], **options: Any) -> list[str]: ...
    def predict(self, inputs: Input | Sequence[Input], **options: Any) -> str | list[str]:
        """The steps after one table, or after each of several, as comma-separated text."""
        found: str | list[str] = self.apply(inputs, lambda prediction: prediction.text, **options)
        return found

    def predictions(self, texts: Iterable[Input], **options: Any) -> Iterator[Forecast]:
        """Yield the steps after each table; holdout: forecast its last rows instead."""
        holdout = bool(options.pop("holdout", False))
        if options:
            raise ConfigError(f"given {next(iter(options))!r}, but the only option of forecasting is holdout")
        return self.forecast_chunks(chunk_lines(texts), holdout)

    def predict_chunks(
        self,
        chunks: Iterable[Sequence[str]],
        config: SearchConfig,
        options: PredictOptions,
        unknown: dict[str, int],
        first: int = 1,
    ) -> Iterator[Forecast]:
        return self.forecast_chunks(chunks, options.holdout, first)

    def join_lines(self, chunks: Iterable[Sequence[str]]) -> Iterator[Sequence[str]]:
        return join_tables(chunks)

    def forecast_chunks(self, chunks: Iterable[Sequence[Input]], holdout: bool, first: int = 1) -> Iterator[Forecast]:
        for _, tables in checked_chunks(chunks, partial(self.read_input, holdout), first):
            for table in tables:
                yield self.forecast_table(table, holdout=holdout)

    def read_input(self, holdout: bool, given: Input, number: int) -> SeriesTable:
        """The table of an input; DataError if it is none, or too short."""
        place = f"table {number}"
        if isinstance(given, str):
            for line in given.split("\n"):
                refuse_too_long(line, place)
            self.refuse_path(given, place)
            given = parse_columns(given, place) if given.lstrip().startswith("{") else given
        if isinstance(given, str):
            table = self.read_text(given, place)
        elif isinstance(given, Mapping):
            table = self.read_columns(given, place)
        else:
            raise DataError(f"{place} is {given!r:.60}; expected a table, as text or as a dictionary of columns")
        rows, least = len(table.values), self.config.look_back + (self.config.horizon if holdout else 0)
        if rows < least:
            needed = "task.look_back + task.horizon" if holdout else "task.look_back"
            raise DataError(f"{place} has {counted(rows, 'rows')}; expected at least {needed} = {least:,}")
        return table

    def read_text(self, text: str, place: str) -> SeriesTable:
        table = parse_table(self.run.data, enumerate((line.encode() for line in text.split("\n")), start=1), place)
        for _, problem in table.missing:
            raise DataError(f"{place} line {problem.line}: {problem.text}; expected a number in every column")
        return table

    def read_columns(self, columns: Columns, place: str) -> SeriesTable:
        """The table of columns of equal length."""
        time, names = self.run.data.time, self.config.known_variables
        refuse_unequal(columns, names if time is None else (time, *names), place)
        times = () if time is None else tuple(map(str, columns[time]))
        before = None
        for at, one in enumerate(times, start=1):
            moment = parse_time(one, f"{place} row {at}, column {time!r}")
            refuse_disorder(before, moment, f"{place} row {at}, column {time!r}")
            before = moment
        return SeriesTable(names, column_values(columns, names, place), times)

    def encode_example(self, text: str, target: str | None = None, config: SearchConfig | None = None) -> EncodedExample:
        """The last window of a table, or of the file with this path; its tokens are its patches. target: a variable, whose
        forecast is analyzed; default: the first."""
        if config is not None:
            raise ConfigError("search options have no effect on a forecaster, which decodes no text", hint="remove them")
        table, names = self.read_input(False, self.one_input(text), 1), self.config.known_variables
        variable = names.index(lookup(target or names[0], {name: name for name in names}, "variable"))
        window = self.window(table, len(table.values))
        device = self.system.device
        with inference_context(self.forecaster):
            standardized = self.forecaster.standardize(window.values[None].to(device))
            return encode_window(self.forecaster, standardized, window.calendar[None].to(device), variable)

    def window(self, table: SeriesTable, last: int) -> TableWindow:
        """The window of a table that ends before row `last`."""
        config = self.config
        values = self.series.encode(table, "the table").values
        times, later = table.times[last - config.look_back : last], table.times[last : last + config.horizon]
        following = list(later) or next_times(times, config.horizon)
        steps = config.look_back + config.horizon
        calendar = torch.from_numpy(calendar_features([*times, *following], config.covariates, steps))
        return TableWindow(values[last - config.look_back : last], calendar, times, following, values[last:])

    def forecast_table(self, table: SeriesTable, *, holdout: bool = False) -> Forecast:
        model, config = self.forecaster, self.config
        values, calendar, times, following, truth = self.window(table, len(table.values) - (config.horizon if holdout else 0))
        with inference_context(model):
            window = model.standardize(values[None].to(self.system.device))
            forecast = model(window, calendar[None].to(self.system.device)).float().sort(-1).values
            if not bool(forecast.isfinite().all()):
                raise self.system.nonfinite_error("a table")
            outputs = model.restore(forecast)[0].cpu()  # (horizon, variables, quantiles)
            ridge = model.ridge_forecast(window)
            linear = {} if ridge is None else {"ridge": model.restore(ridge[..., None])[0, ..., 0].tolist()}
        season = min(config.season or season_of(times), config.look_back)
        naive = values[config.look_back - season + torch.arange(config.horizon) % season]
        seasonal = {f"seasonal naive ({season} steps)": naive.tolist()} if season > 1 else {}
        return Forecast(
            self.run.data.time or STEP,
            following,
            config.known_variables,
            outputs[..., model.middle].tolist(),
            config.quantiles,
            outputs.tolist() if config.quantiles else [],
            list(times) or [str(step) for step in range(1 - config.look_back, 1)],
            values.tolist(),
            {"persistence": values[-1:].expand(config.horizon, -1).tolist(), **seasonal, **linear},
            truth.tolist(),
        )

    def split(self, split: str) -> EncodedSeries:
        check_split(self.run.data, split)
        return self.series.series(split)

    def example_inputs(self, split: str) -> Iterator[ExampleInput]:
        """The last rows of a split as a table, as many as a forecast of rows held out needs; then those before them."""
        if find_split_file(self.run.data, split) is None:
            return
        series, names, rows = self.split(split), self.config.known_variables, self.config.look_back + self.config.horizon
        for last in range(len(series.values), series.start + rows - 1, -self.config.horizon):
            chosen = slice(last - rows, last)
            yield ExampleInput(table_text(names, series.values[chosen].numpy(), self.run.data.time, series.times[chosen]), None)

    def evaluate(self, split: str = "test") -> dict[str, float]:
        """Loss, squared and absolute error of standardized values, on a split of the run's data."""
        return evaluate(self.forecaster, self.system, self.split(split), self.config).figures(self.config)

    def report(self, split: str | None, options: EvaluateOptions, *, load: Loader, search: Searcher) -> ForecastReport:
        name = split or "test"
        tested, train, valid = (self.split(one) for one in (name, "train", "valid"))
        forecasts = evaluate(self.forecaster, self.system, tested, self.config)
        windows = tuple(standardized_windows(self.forecaster, one) for one in (train, valid, tested))
        season, interval = self.config.season or season_of(train.times), self.config.interval
        return ForecastReport(
            name,
            len(tested),
            forecasts.figures(self.config),
            None if interval is None else forecasts.coverage,
            interval,
            baselines(windows[0], windows[1], windows[2], season),
            options.baselines,
        )

    def validate(self) -> ValidationResult:
        return ValidationResult(self.evaluate("valid"), None, None, {})

    def training_losses(self, count: int) -> Iterator[Callable[[], Tensor]]:
        """Of the first `count` windows of the training data."""
        series = self.split("train")
        for at in range(0, min(count, len(series)), LOSS_WINDOWS):
            chosen = range(at, min(at + LOSS_WINDOWS, count, len(series)))
            yield partial(window_losses, self.forecaster, series.windows(chosen).to(self.system.device), self.config)


def window_losses(model: ForecastingModel, batch: WindowBatch, config: ForecastingConfig) -> Tensor:
    """The mean loss of each window, (rows,)."""
    forecast = model(model.standardize(batch.window), batch.calendar)
    quantiles = quantile_tensor(config, batch.window.device)
    return forecast_losses(forecast, model.standardize(batch.target), quantiles).flatten(1).mean(1)
