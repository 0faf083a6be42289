"""Classification of texts, by fine-tuning or from scratch.

loss = w_y (-log p(y)) + auxiliary x language modeling loss          w: class weights; auxiliary: of a decoder
loss = sum_c q_c w_c (-log p(c))                                     label smoothing e: q_c = e / labels, and 1 - e more for y
loss = mean over labels of binary cross-entropy                      with multi_label: sigmoid for each label
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.data.labeled import LabeledConfig
from heedful.evaluation.tables import counted
from heedful.nn.losses import Loss
from heedful.tasks.base import RunConfig, TaskDefinition
from heedful.tasks.batch_stream import StreamPosition, shuffled_batches, stream_batches
from heedful.tasks.classification.batch import LabeledBatch
from heedful.tasks.classification.config import ClassificationConfig
from heedful.tasks.classification.data import EncodedSplits, LabeledData, format_examples
from heedful.tasks.classification.evaluate import evaluate
from heedful.tasks.classification.model import ClassificationModel, label_loss
from heedful.tasks.classification.predictor import Classifier
from heedful.tasks.classification.starter import STARTER
from heedful.tasks.objectives import token_loss
from heedful.tasks.system import System
from heedful.training.loop import StreamedBatch, Validation
from heedful.training.update import Objective


def class_weights(config: ClassificationConfig, examples: Sequence[tuple[int, ...]]) -> Tensor | None:
    """The weight of each label; None: all are 1. "balanced": all labels have the same total weight, and the mean weight of an
    example is 1; with multi_label, the examples with and without a label have the same total weight."""
    if config.class_weights != "balanced":
        return None if config.class_weights is None else torch.tensor(config.class_weights)
    labels = len(config.labels)
    counts = np.bincount([index for given in examples for index in given], minlength=labels).clip(1)
    shares = (len(examples) - counts).clip(1) / counts if config.multi_label else len(examples) / (labels * counts)
    return torch.tensor(shares, dtype=torch.float32)


class ClassificationTask:
    def __init__(self, run: RunConfig, corpora: EncodedSplits, system: System) -> None:
        self.config: ClassificationConfig = run.task
        self.data: LabeledConfig = run.data
        self.seed, self.labeled = run.seed, LabeledData(run)
        self.corpora, self.system = corpora, system
        self.auxiliary = self.config.auxiliary if run.model.architecture == "decoder" else 0.0
        weights = class_weights(self.config, corpora.train.labels)
        self.weights = None if weights is None else weights.to(system.device)  # (labels,)

    def statistics(self) -> dict[str, float]:
        """Sizes of the training data and of an epoch."""
        train, plan = self.corpora.train, self.plan(0)
        tokens = sum(len(row.ids) for group in train.groups for row in group)
        return {"examples": len(train.labels), "batches_per_epoch": len(plan), "tokens_per_epoch": tokens}

    def describe(self) -> str:
        sizes = self.statistics()
        return f"{counted(sizes['examples'], 'examples')} in {counted(sizes['batches_per_epoch'], 'batches')} per epoch"

    def plan(self, epoch: int) -> list[NDArray[np.int64]]:
        return shuffled_batches(len(self.corpora.train.labels), self.data.batch, seed=self.seed, epoch=epoch)

    def stream(self, epoch: int, cursor: int) -> Generator[StreamedBatch, None, None]:
        """An endless stream of batches from the given position, prefetched."""

        def collate(chosen: NDArray[np.int64], epoch: int) -> LabeledBatch:
            return self.labeled.collate(self.corpora.train, chosen.tolist(), self.system.target_tokenizer.specials)

        return stream_batches(
            self.plan, collate, StreamPosition(epoch, cursor), device=self.system.device, ahead=self.data.prefetch
        )

    def count(self, batch: LabeledBatch) -> int:
        return len(batch.labels)

    def split(self, batch: LabeledBatch, parts: int) -> Sequence[LabeledBatch]:
        cuts = torch.arange(len(batch.labels)).chunk(parts)
        return [batch.examples(int(cut[0]), int(cut[-1]) + 1) for cut in cuts]

    def loss(self, model: ClassificationModel, batch: LabeledBatch) -> Objective:
        return self.objective(model, *batch.to(self.system.device))

    def objective(self, model: ClassificationModel, *tensors: Tensor) -> Objective:
        """The loss as a function of tensors only, those of a `LabeledBatch`, which can be compiled or captured."""
        batch = LabeledBatch(*tensors)
        logits, hidden = model(batch)
        plain = total = label_loss(logits, batch.labels, self.weights)
        if self.config.label_smoothing:
            total = label_loss(logits, batch.labels, self.weights, self.config.label_smoothing)
        count = batch.last.new_full((), len(batch.labels))
        report = {"loss": Loss(plain.detach(), count)}
        if self.auxiliary:
            pad = self.system.target_tokenizer.specials.pad  # the extract token is not predicted, nor is padding
            targets = batch.tokens[:, 1:].flatten()
            smoothed, language = token_loss(model.body, hidden[:, :-1].flatten(0, 1), targets, padding=pad)
            total = total + self.auxiliary * smoothed.total / batch.tokens_per_example[0]
            report["language"] = language
        return Objective(Loss(total, count), report)

    def validate(self, model: ClassificationModel) -> Validation:
        return Validation(evaluate(model, self.system, self.labeled, self.corpora.valid), {}, [])


TASK = TaskDefinition(
    ClassificationConfig, LabeledConfig, LabeledData, ClassificationTask, Classifier, format_examples, STARTER
)
