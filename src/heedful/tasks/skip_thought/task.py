"""Skip-thought vectors: an encoder trained to predict the sentences before and after each sentence (Kiros et al., 2015)."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.data.corpus_text import TextConfig
from heedful.data.mixing import corpus_counts, describe_mixture, mix_corpora, temper_weights
from heedful.evaluation.tables import counted
from heedful.nn.losses import Loss
from heedful.tasks.base import RunConfig, TaskDefinition
from heedful.tasks.batch_stream import StreamPosition, shuffled_batches, stream_batches
from heedful.tasks.language.data import TextSplits, format_examples
from heedful.tasks.skip_thought.config import SkipThoughtConfig
from heedful.tasks.skip_thought.data import SkipThoughtData, find_sentences
from heedful.tasks.skip_thought.evaluate import evaluate
from heedful.tasks.skip_thought.model import Neighbors, SkipThoughtModel, neighbor_loss
from heedful.tasks.skip_thought.predictor import SkipThought
from heedful.tasks.skip_thought.starter import STARTER
from heedful.tasks.system import System
from heedful.training.loop import StreamedBatch, Validation
from heedful.training.update import Objective


class SkipThoughtTask:
    def __init__(self, run: RunConfig, texts: TextSplits, system: System) -> None:
        self.config: SkipThoughtConfig = run.task
        self.data: TextConfig = run.data
        self.seed, self.text_data, self.system = run.seed, SkipThoughtData(run), system
        self.marks = system.target_tokenizer.specials
        self.train = find_sentences([text.ids for text in texts.train], self.marks.end)
        self.valid = find_sentences([texts.valid.ids], self.marks.end)
        self.weights: list[float] | None = None  # of the corpora, if they are mixed
        if self.data.is_mixed:
            self.weights = temper_weights(self.train.sizes, self.data.weights, self.data.temperature)

    def statistics(self) -> dict[str, float]:
        """Sizes of the training data and of an epoch."""
        plan = self.plan(0)
        neighbors = self.train.rows[np.concatenate(plan), 1:]
        spans = self.train.spans[neighbors[neighbors >= 0]]
        return {
            "sentences": len(self.train.rows),
            "batches_per_epoch": len(plan),
            "tokens_per_epoch": int((spans[:, 1] - spans[:, 0] + 1).sum()),
        }

    def describe(self) -> str:
        sizes = self.statistics()
        return (
            f"{counted(sizes['sentences'], 'sentences')} with neighbors in "
            f"{counted(sizes['batches_per_epoch'], 'batches')} per epoch"
            f"{describe_mixture(self.epoch_counts(), 'sentences')}"
        )

    def epoch_counts(self) -> list[int]:
        """The number of sentences of each corpus in an epoch, if they are mixed."""
        return [] if self.weights is None else corpus_counts(self.train.sizes, self.weights)

    def plan(self, epoch: int) -> list[NDArray[np.int64]]:
        """The sentences of each batch: a pure function of the seed and the epoch."""
        if self.weights is None:
            return shuffled_batches(len(self.train.rows), self.data.batch, seed=self.seed, epoch=epoch)
        mixed = mix_corpora(self.train.sizes, self.weights, seed=self.seed, epoch=epoch)
        return [mixed[chosen] for chosen in shuffled_batches(len(mixed), self.data.batch, seed=self.seed, epoch=epoch)]

    def stream(self, epoch: int, cursor: int) -> Generator[StreamedBatch, None, None]:
        """An endless stream of batches from the given position, prefetched."""

        def collate(chosen: NDArray[np.int64], epoch: int) -> Neighbors:
            return self.text_data.collate(self.train, self.train.rows[chosen], self.marks)

        return stream_batches(
            self.plan, collate, StreamPosition(epoch, cursor), device=self.system.device, ahead=self.data.prefetch
        )

    def count(self, batch: Neighbors) -> int:
        return int(sum((text[:, 1:] != self.marks.pad).sum() for text in (batch.previous, batch.next)))

    def split(self, batch: Neighbors, parts: int) -> Sequence[Neighbors]:
        return [batch.rows(int(cut[0]), int(cut[-1]) + 1) for cut in torch.arange(len(batch.tokens)).chunk(parts)]

    def loss(self, model: SkipThoughtModel, batch: Neighbors) -> Objective:
        return self.objective(model, *batch.to(self.system.device))

    def objective(self, model: SkipThoughtModel, *tensors: Tensor) -> Objective:
        """The loss as a function of tensors only, those of `Neighbors`, which can be compiled or captured."""
        loss = neighbor_loss(model, Neighbors(*tensors), self.marks.pad)
        return Objective(loss, {"loss": Loss(loss.total.detach(), loss.count)})

    def validate(self, model: SkipThoughtModel) -> Validation:
        return Validation(evaluate(model, self.system, self.text_data, self.valid), {}, [])


TASK = TaskDefinition(SkipThoughtConfig, TextConfig, SkipThoughtData, SkipThoughtTask, SkipThought, format_examples, STARTER)
