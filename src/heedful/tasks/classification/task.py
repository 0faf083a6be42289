"""Classification by fine-tuning a language model.

loss = classification loss + auxiliary x language modeling loss
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from heedful.data.labeled import LabeledConfig
from heedful.nn.losses import Loss
from heedful.tasks.base import RunConfig, TaskDefinition
from heedful.tasks.batch_stream import StreamPosition, stream_batches
from heedful.tasks.classification.config import ClassificationConfig
from heedful.tasks.classification.data import EncodedSplits, LabeledBatch, LabeledData, format_examples
from heedful.tasks.classification.evaluate import evaluate
from heedful.tasks.classification.model import ClassificationModel
from heedful.tasks.classification.predictor import Classifier
from heedful.tasks.classification.starter import STARTER
from heedful.tasks.objectives import token_loss
from heedful.tasks.system import System
from heedful.training.loop import StreamedBatch, Validation
from heedful.training.update import Objective


class ClassificationTask:
    def __init__(self, run: RunConfig, corpora: EncodedSplits, system: System) -> None:
        self.config: ClassificationConfig = run.task
        self.data: LabeledConfig = run.data
        self.seed, self.labeled = run.seed, LabeledData(run)
        self.corpora, self.system = corpora, system

    def statistics(self) -> dict[str, float]:
        """Sizes of the training data and of an epoch."""
        train, plan = self.corpora.train, self.plan(0)
        tokens = sum(len(sequence) for group in train.groups for sequence in group)
        return {"examples": len(train.labels), "batches_per_epoch": len(plan), "tokens_per_epoch": tokens}

    def describe(self) -> str:
        sizes = self.statistics()
        return f"{sizes['examples']:,} examples in {sizes['batches_per_epoch']:,} batches per epoch"

    def plan(self, epoch: int) -> list[NDArray[np.int64]]:
        """The examples of each batch: a pure function of the seed and the epoch."""
        order = np.random.Generator(np.random.Philox(key=[self.seed, epoch])).permutation(len(self.corpora.train.labels))
        return [order[at : at + self.data.batch] for at in range(0, len(order), self.data.batch)]

    def stream(self, epoch: int, cursor: int) -> Generator[StreamedBatch, None, None]:
        """An endless stream of batches from the given position, prefetched."""

        def collate(chosen: NDArray[np.int64], epoch: int) -> LabeledBatch:
            return self.labeled.collate(self.corpora.train, chosen.tolist(), self.system.target_tokenizer.specials.pad)

        return stream_batches(
            self.plan, collate, StreamPosition(epoch, cursor), device=self.system.device, ahead=self.data.prefetch
        )

    def count(self, batch: LabeledBatch) -> int:
        return len(batch.labels)

    def split(self, batch: LabeledBatch, parts: int) -> Sequence[LabeledBatch]:
        group = len(batch.tokens) // len(batch.labels)
        cuts = torch.arange(len(batch.labels)).chunk(parts)
        sides = [(int(cut[0]), int(cut[-1]) + 1) for cut in cuts]
        tokens, last, labels = batch
        return [LabeledBatch(tokens[a * group : b * group], last[a * group : b * group], labels[a:b]) for a, b in sides]

    def loss(self, model: ClassificationModel, batch: LabeledBatch) -> Objective:
        return self.objective(model, *batch.to(self.system.device))

    def objective(self, model: ClassificationModel, tokens: Tensor, last: Tensor, labels: Tensor) -> Objective:
        """The loss as a function of tensors only, which can be compiled or captured."""
        logits, hidden = model(tokens, last, len(tokens) // len(labels))
        total = functional.cross_entropy(logits.float(), labels, reduction="sum")
        count = labels.new_full((), len(labels))
        report = {"loss": Loss(total.detach(), count)}
        if self.config.auxiliary:
            pad = self.system.target_tokenizer.specials.pad  # the extract token is not predicted, nor is padding
            targets = tokens[:, 1:].flatten()
            smoothed, language = token_loss(model.body, hidden[:, :-1].flatten(0, 1), targets, padding=pad)
            total = total + self.config.auxiliary * smoothed.total / smoothed.count * len(labels)
            report["language"] = language
        return Objective(Loss(total, count), report)

    def validate(self, model: ClassificationModel) -> Validation:
        return Validation(evaluate(model, self.system, self.labeled, self.corpora.valid), {}, [])


TASK = TaskDefinition(
    ClassificationConfig, LabeledConfig, LabeledData, ClassificationTask, Classifier, format_examples, STARTER
)
