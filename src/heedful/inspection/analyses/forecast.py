"""A forecast as curves: the history it was made from, the forecast with its prediction intervals, and baselines.

result = heedful.inspection.forecast(forecaster, table)          result.save("curve.png")
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from heedful.evaluation.tables import table as format_table
from heedful.inspection.drawing.figure import Figure
from heedful.inspection.drawing.forecast_figure import Curve, forecast_figure
from heedful.inspection.page.blocks import Block, Pictures, Table, Words
from heedful.inspection.result import Result
from heedful.tasks.forecasting.predictor import Forecast, Forecaster
from heedful.tasks.predictor import Predictor

SHOWN = 1.5  # horizons of history in a figure, at most
LEAST = 24  # steps of history in a figure, where there are as many


@dataclass(frozen=True)
class ForecastResult(Result):
    """A forecast with its history.

    >>> days = [f"2024-01-{day:02}" for day in range(1, 9)]
    >>> table = {"date": days, "load": [3, 1, 2, 3, 1, 2, 3, 1], "wind": [0] * 8}
    >>> forecast = heedful.Forecaster.load(forecasting_run).forecast(table, holdout=True)
    >>> result = heedful.inspection.ForecastResult(forecast)
    >>> result.forecast.times, result.errors["persistence"] >= 0
    (['2024-01-07', '2024-01-08'], True)
    """

    analysis: ClassVar[str] = "forecast"

    forecast: Forecast

    @property
    def title(self) -> str:
        times = self.forecast.times
        return f"Forecast of {len(times)} step{'s' * (len(times) != 1)} from {times[0]}"

    @property
    def interval(self) -> str:
        """The name of the bands: that of the widest, and of those within it."""
        quantiles = self.forecast.quantiles
        if len(quantiles) < 2:
            return ""
        widths = [f"{quantiles[-1 - at] - quantiles[at]:.0%}" for at in range(len(quantiles) // 2)]
        return f"{' and '.join(widths)} prediction interval{'s' * (len(widths) > 1)}"

    @property
    def errors(self) -> dict[str, float]:
        """Mean absolute error of the forecast and of the baselines, over all variables, in the units of the data; empty where
        the true values are not known."""
        truth = np.array(self.forecast.truth)
        compared = {"this run": self.forecast.values, **self.forecast.baselines} if truth.size else {}
        return {name: float(np.abs(np.array(values) - truth).mean()) for name, values in compared.items()}

    def to_dict(self) -> dict[str, Any]:
        one = self.forecast
        past = {name: [row[at] for row in one.history] for at, name in enumerate(one.variables)}
        return {
            "forecast": one.to_dict(),
            "history": {one.time: one.history_times, **past},
            "baselines": {
                name: {variable: [row[at] for row in rows] for at, variable in enumerate(one.variables)}
                for name, rows in one.baselines.items()
            },
            "errors": self.errors,
        }

    def text(self) -> str:
        if not self.errors:
            return self.forecast.text
        return f"{self.forecast.text}\n\n{format_table(self.error_rows())}"

    def error_rows(self) -> list[tuple[str, str]]:
        return [("forecast", "mean absolute error"), *((name, f"{value:.4g}") for name, value in self.errors.items())]

    def blocks(self) -> list[Block]:
        rows = [row.split(",") for row in self.forecast.rows()]
        blocks: list[Block] = [Pictures([self.figure()]), Table(rows, "forecast")]
        if self.errors:
            blocks.insert(1, Table(self.error_rows(), "mean absolute error over all variables"))
        hint = "The vertical line is the last step of the history. Persistence repeats it, seasonal naive the last season."
        if "ridge" in self.forecast.baselines:
            hint = f"{hint} Ridge is the linear map of the run alone."
        return [Words(hint, "hint"), *blocks]

    def figure(self) -> Figure:
        one, horizon = self.forecast, len(self.forecast.times)
        past = min(len(one.history), max(round(SHOWN * horizon), LEAST))
        curves = [self.curve(at, past) for at in range(len(one.variables))]
        return forecast_figure(curves, [*one.history_times[-past:], *one.times], self.title, self.interval)

    def curve(self, at: int, past: int) -> Curve:
        """The variable with this number, and the last steps of its history."""
        one = self.forecast

        def column(rows: Sequence[Sequence[float]]) -> list[float]:
            return [row[at] for row in rows]

        def ends(number: int) -> tuple[list[float], list[float]]:
            return [row[at][number] for row in one.outputs], [row[at][-1 - number] for row in one.outputs]

        bands = [ends(number) for number in range(len(one.quantiles) // 2)]
        baselines = {name: column(rows) for name, rows in one.baselines.items()}
        history = column(one.history[-past:])
        return Curve(one.variables[at], history, column(one.values), bands, baselines, column(one.truth))


def forecast(predictor: Predictor, text: str, *, holdout: bool = False) -> ForecastResult:
    """The steps after a table, with their history and baselines. text: the table, comma-separated, or a JSON object with a list
    for each column; holdout: forecast its last rows instead, from those before them, and compare with their values.

    >>> table = "date,load,wind\\n2024-01-01,1,0\\n2024-01-02,2,1\\n2024-01-03,3,0\\n2024-01-04,1,1\\n"
    >>> heedful.inspection.forecast(heedful.load(forecasting_run), table).title
    'Forecast of 2 steps from 2024-01-05'
    """
    return ForecastResult(Forecaster.of(predictor).forecast(text, holdout=holdout))
