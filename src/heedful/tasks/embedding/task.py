"""Embedding: contrastive training with the other rows of a batch and hard negatives as negatives.

The number of negatives grows with data.batch. Several processes gather the vectors of the batch. A batch that is split because
memory ran out has fewer negatives: each part is compared within itself.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.data.similar import SimilarConfig
from heedful.evaluation.tables import counted
from heedful.nn.losses import Loss
from heedful.tasks.base import RunConfig, TaskDefinition
from heedful.tasks.batch_stream import StreamPosition, shuffled_batches, stream_batches
from heedful.tasks.embedding.config import EmbeddingConfig
from heedful.tasks.embedding.data import SimilarBatch, SimilarData, SimilarSplits, format_examples
from heedful.tasks.embedding.evaluate import evaluate
from heedful.tasks.embedding.model import EmbeddingModel
from heedful.tasks.embedding.predictor import Embedder, row_losses
from heedful.tasks.embedding.starter import STARTER
from heedful.tasks.system import System
from heedful.training.loop import StreamedBatch, Validation
from heedful.training.update import Objective


class EmbeddingTask:
    def __init__(self, run: RunConfig, corpora: SimilarSplits, system: System) -> None:
        self.config: EmbeddingConfig = run.task
        self.data: SimilarConfig = run.data
        self.seed, self.similar = run.seed, SimilarData(run)
        self.corpora, self.system = corpora, system

    def statistics(self) -> dict[str, float]:
        """Sizes of the training data and of an epoch."""
        train = self.corpora.train
        tokens = sum(len(text) for row in train for text in (row.anchor, row.positive, *row.negatives))
        return {
            "examples": len(train),
            "hard_negatives": sum(len(row.negatives) for row in train),
            "batches_per_epoch": len(self.plan(0)),
            "tokens_per_epoch": tokens,
        }

    def describe(self) -> str:
        sizes = self.statistics()
        return (
            f"{counted(sizes['examples'], 'pairs')} and {counted(sizes['hard_negatives'], 'hard negatives')} "
            f"in {counted(sizes['batches_per_epoch'], 'batches')} per epoch"
        )

    def plan(self, epoch: int) -> list[NDArray[np.int64]]:
        return shuffled_batches(len(self.corpora.train), self.data.batch, seed=self.seed, epoch=epoch)

    def stream(self, epoch: int, cursor: int) -> Generator[StreamedBatch, None, None]:
        """An endless stream of batches from the given position, prefetched."""
        width, padding = self.corpora.negatives, self.system.target_tokenizer.specials.pad

        def collate(chosen: NDArray[np.int64], epoch: int) -> SimilarBatch:
            return self.similar.collate([self.corpora.train[i] for i in chosen.tolist()], width, padding)

        return stream_batches(
            self.plan, collate, StreamPosition(epoch, cursor), device=self.system.device, ahead=self.data.prefetch
        )

    def count(self, batch: SimilarBatch) -> int:
        return len(batch.tokens)

    def split(self, batch: SimilarBatch, parts: int) -> Sequence[SimilarBatch]:
        """Shares of several processes, which exchange vectors; in one process, parts that are compared within themselves."""
        cuts = [slice(int(cut[0]), int(cut[-1]) + 1) for cut in torch.arange(len(batch.tokens)).chunk(parts)]
        return [batch.share(cut) if self.system.ranks.size > 1 else batch.rows(cut) for cut in cuts]

    def loss(self, model: EmbeddingModel, batch: SimilarBatch) -> Objective:
        return self.objective(model, *batch.to(self.system.device))

    def objective(self, model: EmbeddingModel, *tensors: Tensor) -> Objective:
        """The loss as a function of tensors only, those of a `SimilarBatch`, which can be compiled or captured."""
        batch = SimilarBatch(*tensors)
        total = row_losses(model, batch, self.config.temperature, self.system.ranks).sum()
        count = batch.lengths.new_full((), len(batch.tokens))
        return Objective(Loss(total, count), {"loss": Loss(total.detach(), count)})

    def validate(self, model: EmbeddingModel) -> Validation:
        return Validation(evaluate(model, self.system, self.corpora.valid, self.config.temperature), {}, [])


TASK = TaskDefinition(EmbeddingConfig, SimilarConfig, SimilarData, EmbeddingTask, Embedder, format_examples, STARTER)
