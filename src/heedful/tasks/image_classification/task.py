"""Classification of images.

loss = sum_c q_c (-log p(c))       label smoothing e: q_c = e / labels, and 1 - e more for the correct label

With CutMix, an image has the labels of both images whose pixels it has, each with its share of the pixels.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from heedful.data.images import ImagesConfig
from heedful.evaluation.tables import counted
from heedful.nn.losses import Loss
from heedful.tasks.base import RunConfig, TaskDefinition
from heedful.tasks.batch_stream import StreamPosition, shuffled_batches, stream_batches
from heedful.tasks.image_classification.config import ImageClassificationConfig
from heedful.tasks.image_classification.data import ImageBatch, ImageData, ImageSplits, format_examples, resolve
from heedful.tasks.image_classification.evaluate import figures_of, logits_of
from heedful.tasks.image_classification.model import ImageModel
from heedful.tasks.image_classification.predictor import ImageClassifier
from heedful.tasks.image_classification.starter import STARTER
from heedful.tasks.system import System
from heedful.training.loop import StreamedBatch, Validation
from heedful.training.update import Objective

COUNTED = 4096  # images whose pixels are counted at a time


def count_pixels(images: Any) -> Tensor:
    """How often each value of a pixel occurs in a set of images: (channels, 256)."""
    channels = images.pixels.shape[3]
    counts = np.zeros((channels, 256), np.int64)
    for at in range(0, len(images.rows), COUNTED):
        pixels = images.pixels[images.rows[at : at + COUNTED]]
        counts += [np.bincount(pixels[..., channel].ravel(), minlength=256) for channel in range(channels)]
    return torch.from_numpy(counts)


class ImageClassificationTask:
    def __init__(self, run: RunConfig, corpora: ImageSplits, system: System) -> None:
        self.config: ImageClassificationConfig = run.task
        self.data: ImagesConfig = run.data
        self.seed, self.corpora, self.system = run.seed, corpora, system
        model: Any = system.models[0].base_model
        model.fit_pixels(count_pixels(corpora.train))

    def statistics(self) -> dict[str, float]:
        """Sizes of the training data and of an epoch."""
        return {"examples": len(self.corpora.train.rows), "batches_per_epoch": len(self.plan(0))}

    def describe(self) -> str:
        sizes = self.statistics()
        return f"{counted(sizes['examples'], 'images')} in {counted(sizes['batches_per_epoch'], 'batches')} per epoch"

    def plan(self, epoch: int) -> list[NDArray[np.int64]]:
        return shuffled_batches(len(self.corpora.train.rows), self.data.batch, seed=self.seed, epoch=epoch)

    def stream(self, epoch: int, cursor: int) -> Generator[StreamedBatch, None, None]:
        """An endless stream of batches from the given position, prefetched."""

        def collate(chosen: NDArray[np.int64], epoch: int) -> ImageBatch:
            return self.corpora.train.augmented_batch(chosen, self.data.augment, seed=self.seed, epoch=epoch)

        return stream_batches(
            self.plan, collate, StreamPosition(epoch, cursor), device=self.system.device, ahead=self.data.prefetch
        )

    def count(self, batch: ImageBatch) -> int:
        return len(batch.labels)

    def split(self, batch: ImageBatch, parts: int) -> Sequence[ImageBatch]:
        return [ImageBatch(*one) for one in zip(*(tensor.chunk(parts) for tensor in batch), strict=True)]

    def loss(self, model: ImageModel, batch: ImageBatch) -> Objective:
        return self.objective(model, *batch.to(self.system.device))

    def objective(self, model: ImageModel, *tensors: Tensor) -> Objective:
        """The loss as a function of tensors only, those of an `ImageBatch`, which can be compiled or captured."""
        pixels, labels, mixed_labels, mixed_shares = tensors
        logits, smoothing = model(pixels).float(), self.config.label_smoothing
        losses = functional.cross_entropy(logits, labels, reduction="none", label_smoothing=smoothing)  # (images,)
        if self.data.augment.cutmix:
            mixed = functional.cross_entropy(logits, mixed_labels, reduction="none", label_smoothing=smoothing)
            losses = torch.lerp(losses, mixed, mixed_shares)
        plain = functional.cross_entropy(logits.detach(), labels, reduction="sum")
        count = labels.new_full((), len(labels))
        return Objective(Loss(losses.sum(), count), {"loss": Loss(plain, count)})

    def validate(self, model: ImageModel) -> Validation:
        figures = figures_of(logits_of(model, self.system, self.corpora.valid), self.corpora.valid)
        return Validation({name: figure.statistics.value() for name, figure in figures.items()}, {}, [])


TASK = TaskDefinition(
    ImageClassificationConfig,
    ImagesConfig,
    ImageData,
    ImageClassificationTask,
    ImageClassifier,
    format_examples,
    STARTER,
    resolve,
)
