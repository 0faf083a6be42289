"""Dual encoder: a question and an answer as vectors of length 1 whose product is the score of the answer (Yih et al., 2011).

    score(q, a) = f(q) . g(a)                         g = f with shared encoders

    loss_i = -log exp(f(q_i) . g(a_i) / T) / sum_j exp(f(q_i) . g(a_j) / T)       a_j: answers of the batch, hard negatives

An answer is encoded once, whatever is asked; so millions of stored answers are compared with a question by one matrix product.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

from torch import Tensor, nn

from heedful.nn import masks
from heedful.nn.model import EncoderModel
from heedful.tasks.embedding.model import EmbeddingModel, TrainedPooling, contrastive_losses
from heedful.tasks.retrieval.batch import ReplyBatch
from heedful.training.ranks import Ranks


class DualEncoder(EmbeddingModel):
    """The encoder of questions, and that of answers, which may be the same."""

    def __init__(self, body: EncoderModel, pooling: TrainedPooling, *, shared: bool) -> None:
        super().__init__(body, pooling)
        self.separate_answers = None if shared else EmbeddingModel(copy.deepcopy(body), pooling)

    @property
    def answers(self) -> EmbeddingModel:
        """The encoder of answers."""
        return self.separate_answers or self

    def batch_logits(self, source: Tensor, target: Tensor) -> Tensor:
        """The scores of all pairs of texts, as questions and as answers: (rows, rows)."""
        return self(target) @ self.answers(target).T

    def blocks(self) -> Sequence[nn.Module]:
        own = [] if self.separate_answers is None else self.separate_answers.blocks()
        return [*self.body.blocks(), *own]


def row_losses(model: DualEncoder, batch: ReplyBatch, temperature: float, ranks: Ranks | None = None) -> Tensor:
    """The loss of each row of a batch, (rows,); ranks: the processes that have a share of the batch each."""
    lengths = batch.answer_lengths.flatten().clamp_min(1)  # a row needs a token to attend to
    questions = model(batch.questions, masks.padding(batch.question_lengths, batch.questions.shape[1]))  # (rows, dim)
    answers = model.answers(batch.answers.flatten(0, 1), masks.padding(lengths, batch.answers.shape[2]))
    candidates = (ranks or Ranks()).gather_rows(answers.view(*batch.answers.shape[:2], -1), batch.allowed.shape[1])
    return contrastive_losses(questions, candidates, batch.allowed, batch.place, temperature)
