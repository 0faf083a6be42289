"""Forecasts of all windows of a series, their metrics, and the table with the baselines.

Metrics are those of standardized values, so that variables of any unit have the same weight.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.evaluation.forecasts import Errors, Windows
from heedful.evaluation.tables import table
from heedful.nn.model import inference_context
from heedful.tasks.forecasting.config import ForecastingConfig
from heedful.tasks.forecasting.data import EncodedSeries
from heedful.tasks.forecasting.model import ForecastingModel, forecast_losses
from heedful.tasks.system import System

CHUNK = 64  # windows at a time


class Forecasts(NamedTuple):
    """Sums over all windows, steps and variables."""

    errors: Errors
    loss: float
    covered: int  # values within the interval

    def figures(self, config: ForecastingConfig) -> dict[str, float]:
        """The metrics of the task."""
        found = {"loss": self.loss / max(self.errors.terms, 1), "mse": self.errors.mse, "mae": self.errors.mae}
        if config.interval is not None:
            found["coverage_error"] = abs(self.coverage - config.interval)
        return found

    @property
    def coverage(self) -> float:
        """The fraction of values within the interval."""
        return self.covered / max(self.errors.terms, 1)


def quantile_tensor(config: ForecastingConfig, device: torch.device) -> Tensor | None:
    return torch.tensor(config.quantiles, device=device) if config.quantiles else None


def window_forecasts(model: ForecastingModel, system: System, series: EncodedSeries) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield standardized forecasts (rows, horizon, variables, quantiles), the quantiles in order, and targets (rows, horizon,
    variables), of all windows in order."""
    with inference_context(model):
        for at in range(0, len(series), CHUNK):
            batch = series.windows(range(at, min(at + CHUNK, len(series)))).to(system.device)
            forecast = model(model.standardize(batch.window), batch.calendar).float()
            if not bool(forecast.isfinite().all()):
                raise system.nonfinite_error(f"window {at + 1}")
            yield forecast.sort(-1).values, model.standardize(batch.target)


def evaluate(model: ForecastingModel, system: System, series: EncodedSeries, config: ForecastingConfig) -> Forecasts:
    errors, loss, covered = Errors(), 0.0, 0
    quantiles, at = quantile_tensor(config, system.device), model.middle
    for forecast, target in window_forecasts(model, system, series):
        errors = errors.add(forecast[..., at].cpu().numpy(), target.cpu().numpy())
        loss += float(forecast_losses(forecast, target, quantiles).double().sum())
        covered += int(((target >= forecast[..., 0]) & (target <= forecast[..., -1])).sum())
    return Forecasts(errors, loss, covered)


def standardized_windows(model: ForecastingModel, series: EncodedSeries) -> Windows:
    """The windows of a series for baselines."""
    device = model.mean.device
    values: NDArray[np.float32] = model.standardize(series.values.to(device)).cpu().numpy()
    return Windows(values, series.first, series.look_back, series.horizon)


@dataclass(frozen=True)
class ForecastReport:
    """The result of `heed evaluate`: the model and the baselines, on the same windows."""

    split: str
    windows: int
    figures: dict[str, float]
    coverage: float | None  # of the interval; None: there is none
    interval: float | None
    baselines: dict[str, Errors]
    warnings: Sequence[str] = ()

    def text(self) -> str:
        rows = [("figure", self.split), ("windows", f"{self.windows:,}")]
        rows += [(name.replace("_", " "), f"{value:.4g}") for name, value in self.figures.items()]
        if self.coverage is not None and self.interval is not None:
            rows.append(("coverage", f"{self.coverage:.1%} of values in the {self.interval:.0%} interval"))
        own = self.figures["mse"], self.figures["mae"]
        compared = [("this run", *own), *((name, errors.mse, errors.mae) for name, errors in self.baselines.items())]
        figures = [(name, f"{mse:.4f}", f"{mae:.4f}") for name, mse, mae in compared]
        return f"{table(rows)}\n\n{table([('forecast', 'mse', 'mae'), *figures])}"

    def to_dict(self) -> dict[str, Any]:
        baselines = {name: {"mse": errors.mse, "mae": errors.mae} for name, errors in self.baselines.items()}
        shown = {"split": self.split, "windows": self.windows, "figures": self.figures, "baselines": baselines}
        return shown if self.coverage is None else shown | {"coverage": self.coverage, "interval": self.interval}
