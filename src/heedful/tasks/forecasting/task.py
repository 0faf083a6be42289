"""Forecasting: squared error, or the pinball loss of quantiles, of every value of the horizon.

loss = mean over windows, steps and variables of (y - forecast)^2          of standardized values
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.data.series import SeriesConfig
from heedful.evaluation.forecasts import best_ridge
from heedful.evaluation.tables import counted
from heedful.nn.losses import Loss
from heedful.tasks.base import RunConfig, TaskDefinition
from heedful.tasks.batch_stream import StreamPosition, shuffled_batches, stream_batches
from heedful.tasks.forecasting.config import ForecastingConfig
from heedful.tasks.forecasting.data import SeriesData, SeriesSplits, WindowBatch, format_examples, resolve
from heedful.tasks.forecasting.evaluate import evaluate, quantile_tensor, standardized_windows
from heedful.tasks.forecasting.model import ForecastingModel, forecast_losses
from heedful.tasks.forecasting.predictor import Forecaster
from heedful.tasks.forecasting.starter import STARTER
from heedful.tasks.system import System
from heedful.training.loop import StreamedBatch, Validation
from heedful.training.update import Objective


class ForecastingTask:
    def __init__(self, run: RunConfig, corpora: SeriesSplits, system: System) -> None:
        self.config: ForecastingConfig = run.task
        self.data: SeriesConfig = run.data
        self.seed, self.corpora, self.system = run.seed, corpora, system
        self.quantiles = quantile_tensor(self.config, system.device)
        model = cast(ForecastingModel, system.models[0])
        model.fit(corpora.train.own)
        if self.config.linear == "ridge":
            weights = best_ridge(standardized_windows(model, corpora.train), standardized_windows(model, corpora.valid))
            model.ridge.copy_(torch.from_numpy(weights))

    def statistics(self) -> dict[str, float]:
        """Sizes of the training data and of an epoch."""
        windows = len(self.corpora.train)
        patches = self.config.patches * (len(self.config.known_variables) if self.config.channels == "independent" else 1)
        return {
            "windows": windows,
            "rows": len(self.corpora.train.own),
            "batches_per_epoch": len(self.plan(0)),
            "tokens_per_epoch": windows * patches,
        }

    def describe(self) -> str:
        sizes = self.statistics()
        return (
            f"{counted(len(self.config.known_variables), 'variables')}, {counted(sizes['windows'], 'windows')} of "
            f"{counted(sizes['rows'], 'rows')} "
            f"in {counted(sizes['batches_per_epoch'], 'batches')} per epoch"
        )

    def plan(self, epoch: int) -> list[NDArray[np.int64]]:
        return shuffled_batches(len(self.corpora.train), self.data.batch, seed=self.seed, epoch=epoch)

    def stream(self, epoch: int, cursor: int) -> Generator[StreamedBatch, None, None]:
        """An endless stream of batches from the given position, prefetched."""

        def collate(chosen: NDArray[np.int64], epoch: int) -> WindowBatch:
            return self.corpora.train.windows(chosen)

        return stream_batches(
            self.plan, collate, StreamPosition(epoch, cursor), device=self.system.device, ahead=self.data.prefetch
        )

    def count(self, batch: WindowBatch) -> int:
        return len(batch.window)

    def split(self, batch: WindowBatch, parts: int) -> Sequence[WindowBatch]:
        return [WindowBatch(*part) for part in zip(*(tensor.chunk(parts) for tensor in batch), strict=True)]

    def loss(self, model: ForecastingModel, batch: WindowBatch) -> Objective:
        return self.objective(model, *batch.to(self.system.device))

    def objective(self, model: ForecastingModel, window: Tensor, calendar: Tensor, target: Tensor) -> Objective:
        """The loss as a function of tensors only, which can be compiled or captured."""
        known = model.standardize(target)
        losses = forecast_losses(model(model.standardize(window), calendar, known), known, self.quantiles)
        total = losses.flatten(1).mean(1).sum()  # of windows
        count = torch.full((), len(window), device=total.device)
        return Objective(Loss(total, count), {"loss": Loss(total.detach(), count)})

    def validate(self, model: ForecastingModel) -> Validation:
        forecasts = evaluate(model, self.system, self.corpora.valid, self.config)
        return Validation(forecasts.figures(self.config), {}, [])


TASK = TaskDefinition(
    ForecastingConfig, SeriesConfig, SeriesData, ForecastingTask, Forecaster, format_examples, STARTER, resolve
)
