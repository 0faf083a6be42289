"""Classification of series: the cross-entropy of the label of each."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from heedful.data.labeled_series import LabeledSeriesConfig
from heedful.evaluation.tables import counted
from heedful.nn.losses import Loss
from heedful.tasks.base import RunConfig, TaskDefinition
from heedful.tasks.batch_stream import StreamPosition, shuffled_batches, stream_batches
from heedful.tasks.series_classification.config import SeriesClassificationConfig
from heedful.tasks.series_classification.data import EncodedSplits, LabeledSeriesData, SeriesBatch, format_examples, resolve
from heedful.tasks.series_classification.evaluate import figures_of, logits_of
from heedful.tasks.series_classification.model import SeriesModel
from heedful.tasks.series_classification.predictor import SeriesClassifier
from heedful.tasks.series_classification.starter import STARTER
from heedful.tasks.system import System
from heedful.training.loop import StreamedBatch, Validation
from heedful.training.update import Objective


class SeriesClassificationTask:
    def __init__(self, run: RunConfig, corpora: EncodedSplits, system: System) -> None:
        self.config: SeriesClassificationConfig = run.task
        self.data: LabeledSeriesConfig = run.data
        self.seed, self.corpora, self.system = run.seed, corpora, system
        model = cast(SeriesModel, system.models[0])
        model.body.fit_inputs(torch.cat([self.normalized(model, frames) for frames in corpora.train.frames]))

    def normalized(self, model: SeriesModel, frames: Tensor) -> Tensor:
        """A series as the encoder is given it: (steps, variables)."""
        return model.normalize(frames[None], torch.ones(1, len(frames), dtype=torch.bool))[0]

    def statistics(self) -> dict[str, float]:
        """Sizes of the training data and of an epoch."""
        train = self.corpora.train
        return {
            "examples": len(train.labels),
            "steps": sum(len(frames) for frames in train.frames),
            "batches_per_epoch": len(self.plan(0)),
        }

    def describe(self) -> str:
        sizes = self.statistics()
        return (
            f"{counted(sizes['examples'], 'series')} with {counted(sizes['steps'], 'steps')} in "
            f"{counted(sizes['batches_per_epoch'], 'batches')} per epoch"
        )

    def plan(self, epoch: int) -> list[NDArray[np.int64]]:
        return shuffled_batches(len(self.corpora.train.labels), self.data.batch, seed=self.seed, epoch=epoch)

    def stream(self, epoch: int, cursor: int) -> Generator[StreamedBatch, None, None]:
        """An endless stream of batches from the given position, prefetched."""

        def collate(chosen: NDArray[np.int64], epoch: int) -> SeriesBatch:
            return self.corpora.train.batch(chosen)

        return stream_batches(
            self.plan, collate, StreamPosition(epoch, cursor), device=self.system.device, ahead=self.data.prefetch
        )

    def count(self, batch: SeriesBatch) -> int:
        return len(batch.labels)

    def split(self, batch: SeriesBatch, parts: int) -> Sequence[SeriesBatch]:
        return [SeriesBatch(*one) for one in zip(*(tensor.chunk(parts) for tensor in batch), strict=True)]

    def loss(self, model: SeriesModel, batch: SeriesBatch) -> Objective:
        return self.objective(model, *batch.to(self.system.device))

    def objective(self, model: SeriesModel, vectors: Tensor, mask: Tensor, labels: Tensor) -> Objective:
        """The loss as a function of tensors only, which can be compiled or captured."""
        total = functional.cross_entropy(model(vectors, mask).float(), labels, reduction="sum")
        count = labels.new_full((), len(labels))
        return Objective(Loss(total, count), {"loss": Loss(total.detach(), count)})

    def validate(self, model: SeriesModel) -> Validation:
        valid = self.corpora.valid
        figures = figures_of(logits_of(model, self.system, valid), valid)
        return Validation({name: figure.statistics.value() for name, figure in figures.items()}, {}, [])


TASK = TaskDefinition(
    SeriesClassificationConfig,
    LabeledSeriesConfig,
    LabeledSeriesData,
    SeriesClassificationTask,
    SeriesClassifier,
    format_examples,
    STARTER,
    resolve,
)
