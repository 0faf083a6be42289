"""Span extraction: the cross-entropy of the first and the last token of the answer.

loss = mean over windows of (-log p(first) - log p(last)) / 2
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from heedful.data.spans import SpansConfig
from heedful.evaluation.tables import counted
from heedful.nn.losses import Loss
from heedful.tasks.base import RunConfig, TaskDefinition
from heedful.tasks.batch_stream import StreamPosition, shuffled_batches, stream_batches
from heedful.tasks.span.config import SpanConfig
from heedful.tasks.span.data import SpanBatch, SpanData, SpanSplits, format_examples
from heedful.tasks.span.evaluate import evaluate
from heedful.tasks.span.model import SpanModel
from heedful.tasks.span.predictor import SpanExtractor, row_losses
from heedful.tasks.span.starter import STARTER
from heedful.tasks.system import System
from heedful.training.loop import StreamedBatch, Validation
from heedful.training.update import Objective


class SpanTask:
    def __init__(self, run: RunConfig, corpora: SpanSplits, system: System) -> None:
        self.config: SpanConfig = run.task
        self.data: SpansConfig = run.data
        self.seed, self.spans = run.seed, SpanData(run)
        self.corpora, self.system = corpora, system

    def statistics(self) -> dict[str, float]:
        """Sizes of the training data and of an epoch."""
        questions, rows = self.corpora.train
        return {
            "questions": len(questions),
            "windows": len(rows),
            "batches_per_epoch": len(self.plan(0)),
            "tokens_per_epoch": sum(len(row.tokens) for row in rows),
        }

    def describe(self) -> str:
        sizes = self.statistics()
        return (
            f"{counted(sizes['questions'], 'questions')}, {counted(sizes['windows'], 'windows')} of contexts "
            f"in {counted(sizes['batches_per_epoch'], 'batches')} per epoch"
        )

    def plan(self, epoch: int) -> list[NDArray[np.int64]]:
        return shuffled_batches(len(self.corpora.train.rows), self.data.batch, seed=self.seed, epoch=epoch)

    def stream(self, epoch: int, cursor: int) -> Generator[StreamedBatch, None, None]:
        """An endless stream of batches from the given position, prefetched."""
        rows, padding = self.corpora.train.rows, self.system.target_tokenizer.specials.pad

        def collate(chosen: NDArray[np.int64], epoch: int) -> SpanBatch:
            return self.spans.collate([rows[i] for i in chosen.tolist()], padding)

        return stream_batches(
            self.plan, collate, StreamPosition(epoch, cursor), device=self.system.device, ahead=self.data.prefetch
        )

    def count(self, batch: SpanBatch) -> int:
        return len(batch.tokens)

    def split(self, batch: SpanBatch, parts: int) -> Sequence[SpanBatch]:
        return [SpanBatch(*part) for part in zip(*(tensor.chunk(parts) for tensor in batch), strict=True)]

    def loss(self, model: SpanModel, batch: SpanBatch) -> Objective:
        return self.objective(model, *batch.to(self.system.device))

    def objective(self, model: SpanModel, *tensors: Tensor) -> Objective:
        """The loss as a function of tensors only, those of a `SpanBatch`, which can be compiled or captured."""
        batch = SpanBatch(*tensors)
        total = row_losses(model, batch).sum()
        count = batch.lengths.new_full((), len(batch.tokens))
        return Objective(Loss(total, count), {"loss": Loss(total.detach(), count)})

    def validate(self, model: SpanModel) -> Validation:
        return Validation(evaluate(model, self.system, self.spans, self.corpora.valid), {}, [])


TASK = TaskDefinition(SpanConfig, SpansConfig, SpanData, SpanTask, SpanExtractor, format_examples, STARTER)
