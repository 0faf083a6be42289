"""Forecasts of all windows of a series, their metrics, and the table with the baselines.

Metrics are those of standardized values, so that variables of any unit have the same weight.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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


def window_forecasts(
    model: ForecastingModel, system: System, series: EncodedSeries, windows: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Standardized forecasts (rows, horizon, variables, quantiles), the quantiles in order, and targets (rows, horizon,
    variables), of some windows."""
    batch = series.windows(windows).to(system.device)
    with inference_context(model):
        forecast = model(model.standardize(batch.window), batch.calendar).float()
    if not bool(forecast.isfinite().all()):
        raise system.nonfinite_error(f"window {windows[0] + 1}")
    return forecast.sort(-1).values, model.standardize(batch.target)


def evaluate(model: ForecastingModel, system: System, series: EncodedSeries, config: ForecastingConfig) -> Forecasts:
    quantiles = quantile_tensor(config, system.device)

    def score(at: int) -> Forecasts:
        forecast, target = window_forecasts(model, system, series, range(at, min(at + CHUNK, len(series))))
        errors = Errors().add(forecast[..., model.middle].cpu().numpy(), target.cpu().numpy())
        covered = int(((target >= forecast[..., 0]) & (target <= forecast[..., -1])).sum())
        return Forecasts(errors, float(forecast_losses(forecast, target, quantiles).double().sum()), covered)

    parts = system.ranks.map(score, range(0, len(series), CHUNK))
    errors, losses, covered = zip(*parts, strict=True)
    return Forecasts(Errors(*(sum(column) for column in zip(*errors, strict=True))), sum(losses), sum(covered))


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
    with_ratios: bool = False  # also the mse of this run divided by that of each baseline
    warnings: Sequence[str] = ()

    def text(self) -> str:
        rows = [("figure", self.split), ("windows", f"{self.windows:,}")]
        rows += [(name.replace("_", " "), f"{value:.4g}") for name, value in self.figures.items()]
        if self.coverage is not None and self.interval is not None:
            rows.append(("coverage", f"{self.coverage:.1%} of values in the {self.interval:.0%} interval"))
        own = self.figures["mse"], self.figures["mae"]
        compared = [("this run", *own), *((name, errors.mse, errors.mae) for name, errors in self.baselines.items())]
        figures: list[tuple[str, ...]] = [
            ("forecast", "mse", "mae"),
            *((name, f"{mse:.4f}", f"{mae:.4f}") for name, mse, mae in compared),
        ]
        if self.with_ratios:
            ratios = ["mse of this run / its mse", "", *(f"{value:.3f}" for value in self.ratios().values())]
            figures = [(*row, ratio) for row, ratio in zip(figures, ratios, strict=True)]
        return f"{table(rows)}\n\n{table(figures)}"

    def ratios(self) -> dict[str, float]:
        """The mse of this run divided by that of each baseline."""
        return {name: self.figures["mse"] / errors.mse if errors.mse else math.inf for name, errors in self.baselines.items()}

    def to_dict(self) -> dict[str, Any]:
        baselines = {name: {"mse": errors.mse, "mae": errors.mae} for name, errors in self.baselines.items()}
        if self.with_ratios:
            baselines = {name: figures | {"ratio": self.ratios()[name]} for name, figures in baselines.items()}
        shown = {"split": self.split, "windows": self.windows, "figures": self.figures, "baselines": baselines}
        return shown if self.coverage is None else shown | {"coverage": self.coverage, "interval": self.interval}
