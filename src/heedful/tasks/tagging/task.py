"""Tagging: the cross-entropy of the label of each word, or with a CRF of the label sequence.

loss = -sum over words log p(label)        padding is not counted
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import cached_property
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.data.batching import Index, plan_epoch
from heedful.data.tagged import TaggedConfig
from heedful.evaluation.tables import counted
from heedful.nn.losses import Loss
from heedful.nn.model import EncoderModel
from heedful.tasks.base import RunConfig, TaskDefinition
from heedful.tasks.batch_stream import StreamPosition, stream_batches
from heedful.tasks.system import System
from heedful.tasks.tagging.config import TaggingConfig
from heedful.tasks.tagging.data import TagBatch, TaggedData, TaggedSplits, format_examples, resolve
from heedful.tasks.tagging.evaluate import evaluate, figures
from heedful.tasks.tagging.model import PADDING, TaggingModel
from heedful.tasks.tagging.predictor import Tagger
from heedful.tasks.tagging.starter import STARTER
from heedful.training.loop import StreamedBatch, Validation
from heedful.training.update import Objective


class TaggingTask:
    def __init__(self, run: RunConfig, corpora: TaggedSplits, system: System) -> None:
        self.config: TaggingConfig = run.task
        self.data: TaggedConfig = run.data
        self.seed, self.tagged = run.seed, TaggedData(run)
        self.corpora, self.system = corpora, system
        if self.tagged.features:
            model = cast(EncoderModel, system.models[0].base_model)
            model.fit_inputs(torch.cat([row.tokens for row in corpora.train]))

    def statistics(self) -> dict[str, float]:
        """Sizes of the training data and of an epoch."""
        train = self.corpora.train
        return {
            "sentences": train[-1].sentence + 1,
            "words": sum(len(row.labels) for row in train),
            "batches_per_epoch": len(self.plan(0)),
            "tokens_per_epoch": int(self.lengths.sum()),
        }

    def describe(self) -> str:
        sizes = self.statistics()
        return (
            f"{counted(len(self.config.known_labels), 'labels')}, {counted(sizes['words'], 'words')} of "
            f"{counted(sizes['sentences'], 'sentences')} "
            f"in {counted(sizes['batches_per_epoch'], 'batches')} per epoch"
        )

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each row of the training data."""
        return np.array([len(row.tokens) for row in self.corpora.train])

    def plan(self, epoch: int) -> Sequence[Index]:
        """The rows of each batch, of similar length: a pure function of the seed and the epoch."""
        lengths = self.lengths - 1  # the plan adds an end token
        budget, multiple = self.data.batch_tokens, self.data.length_multiple
        return plan_epoch(lengths, lengths, budget=budget, seed=self.seed, epoch=epoch, pad_to_multiple_of=multiple)

    def stream(self, epoch: int, cursor: int) -> Generator[StreamedBatch, None, None]:
        """An endless stream of batches from the given position, prefetched."""
        padding = self.system.target_tokenizer.specials.pad

        def collate(chosen: NDArray[np.int64], epoch: int) -> TagBatch:
            return self.tagged.collate([self.corpora.train[i] for i in chosen.tolist()], padding)

        return stream_batches(
            self.plan, collate, StreamPosition(epoch, cursor), device=self.system.device, ahead=self.data.prefetch
        )

    def count(self, batch: TagBatch) -> int:
        return int((batch.labels != PADDING).sum())

    def split(self, batch: TagBatch, parts: int) -> Sequence[TagBatch]:
        return [TagBatch(*part) for part in zip(*(tensor.chunk(parts) for tensor in batch), strict=True)]

    def loss(self, model: TaggingModel, batch: TagBatch) -> Objective:
        return self.objective(model, *batch.to(self.system.device))

    def objective(
        self, model: TaggingModel, tokens: Tensor, mask: Tensor, first: Tensor, labels: Tensor, spelling: Tensor
    ) -> Objective:
        """The loss as a function of tensors only, which can be compiled or captured."""
        loss = model.loss(model(tokens, mask, first, spelling), labels)
        return Objective(loss, {"loss": Loss(loss.total.detach(), loss.count)})

    def validate(self, model: TaggingModel) -> Validation:
        tagging = evaluate(model, self.system, self.tagged, self.corpora.valid)
        return Validation(figures(tagging, self.config), {}, [])


TASK = TaskDefinition(TaggingConfig, TaggedConfig, TaggedData, TaggingTask, Tagger, format_examples, STARTER, resolve)
