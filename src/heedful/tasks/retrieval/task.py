"""Retrieval: contrastive training of questions and answers, with the other answers of a batch and hard negatives as negatives.

The number of negatives grows with data.batch. Several processes gather the vectors of the batch. A batch that is split because
memory ran out has fewer negatives: each part is compared within itself.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.data.dialogues import DialoguesConfig
from heedful.data.similar import SimilarConfig
from heedful.evaluation.tables import counted
from heedful.nn.losses import Loss
from heedful.tasks.base import RunConfig, TaskDefinition
from heedful.tasks.batch_stream import StreamPosition, shuffled_batches, stream_batches
from heedful.tasks.retrieval.batch import ReplyBatch
from heedful.tasks.retrieval.config import RetrievalConfig
from heedful.tasks.retrieval.data import RetrievalData, RetrievalSplits, format_examples
from heedful.tasks.retrieval.evaluate import evaluate
from heedful.tasks.retrieval.knowledge import FOLDER, REPLIES, Entry, write_replies
from heedful.tasks.retrieval.model import DualEncoder, row_losses
from heedful.tasks.retrieval.predictor import Retriever
from heedful.tasks.retrieval.starter import STARTER
from heedful.tasks.system import System
from heedful.training.loop import StreamedBatch, Validation
from heedful.training.update import Objective


class RetrievalTask:
    def __init__(self, run: RunConfig, corpora: RetrievalSplits, system: System) -> None:
        self.config: RetrievalConfig = run.task
        self.data: DialoguesConfig | SimilarConfig = run.data
        self.seed, self.replies = run.seed, RetrievalData(run)
        self.corpora, self.system = corpora, system

    def statistics(self) -> dict[str, float]:
        """Sizes of the training data and of an epoch."""
        train = self.corpora.train
        replies = (number for own, others in zip(train.answers, train.negatives, strict=True) for number in (own, *others))
        return {
            "examples": len(train.questions),
            "distinct_answers": len(train.texts),
            "hard_negatives": sum(map(len, train.negatives)),
            "batches_per_epoch": len(self.plan(0)),
            "tokens_per_epoch": sum(map(len, train.questions)) + sum(len(train.ids[number]) for number in replies),
        }

    def describe(self) -> str:
        sizes = self.statistics()
        return (
            f"{counted(sizes['examples'], 'questions')} with {counted(sizes['distinct_answers'], 'distinct answers')} and "
            f"{counted(sizes['hard_negatives'], 'hard negatives')} in "
            f"{counted(sizes['batches_per_epoch'], 'batches')} per epoch"
        )

    def plan(self, epoch: int) -> list[NDArray[np.int64]]:
        return shuffled_batches(len(self.corpora.train.questions), self.data.batch, seed=self.seed, epoch=epoch)

    def stream(self, epoch: int, cursor: int) -> Generator[StreamedBatch, None, None]:
        """An endless stream of batches from the given position, prefetched."""
        train, padding = self.corpora.train, self.system.target_tokenizer.specials.pad
        width = train.width

        def collate(chosen: NDArray[np.int64], epoch: int) -> ReplyBatch:
            return self.replies.collate(train, chosen.tolist(), width, padding)

        return stream_batches(
            self.plan, collate, StreamPosition(epoch, cursor), device=self.system.device, ahead=self.data.prefetch
        )

    def count(self, batch: ReplyBatch) -> int:
        return len(batch.questions)

    def split(self, batch: ReplyBatch, parts: int) -> Sequence[ReplyBatch]:
        """Shares of several processes, which exchange vectors; in one process, parts that are compared within themselves."""
        cuts = [slice(int(cut[0]), int(cut[-1]) + 1) for cut in torch.arange(len(batch.questions)).chunk(parts)]
        return [batch.share(cut) if self.system.ranks.size > 1 else batch.rows(cut) for cut in cuts]

    def loss(self, model: DualEncoder, batch: ReplyBatch) -> Objective:
        return self.objective(model, *batch.to(self.system.device))

    def objective(self, model: DualEncoder, *tensors: Tensor) -> Objective:
        """The loss as a function of tensors only, those of a `ReplyBatch`, which can be compiled or captured."""
        batch = ReplyBatch(*tensors)
        total = row_losses(model, batch, self.config.temperature, self.system.ranks).sum()
        count = batch.question_lengths.new_full((), len(batch.questions))
        return Objective(Loss(total, count), {"loss": Loss(total.detach(), count)})

    def validate(self, model: DualEncoder) -> Validation:
        temperature, candidates = self.config.temperature, self.config.candidates
        figures = evaluate(model, self.system, self.corpora.valid, temperature=temperature, candidates=candidates)
        return Validation(figures, {}, [])


def store_replies(run: RunConfig, folder: Path) -> None:
    """Write the training examples as the knowledge base of a run that is trained, unless it has one."""
    if (folder / FOLDER / REPLIES).exists():
        return
    examples = RetrievalData(run).examples("train") or []
    write_replies(folder / FOLDER, (Entry(example.question, example.answer) for example in examples))


TASK = TaskDefinition(
    RetrievalConfig,
    DialoguesConfig,
    RetrievalData,
    RetrievalTask,
    Retriever,
    format_examples,
    STARTER,
    other_data=(SimilarConfig,),
    finish=store_replies,
)
