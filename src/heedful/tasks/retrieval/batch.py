"""A batch of questions and answers as tensors; the two sides are padded to lengths of their own."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class ReplyBatch(NamedTuple):
    questions: Tensor  # (rows, question time)
    question_lengths: Tensor  # (rows,)
    answers: Tensor  # (rows, 1 + negatives, answer time): the answer of each row, then its hard negatives
    answer_lengths: Tensor  # (rows, 1 + negatives): tokens of each text; 0: there is none
    allowed: Tensor  # (rows, all rows, 1 + negatives): whether a row is compared with a candidate
    place: Tensor  # (rows,): of each row among all those whose candidates it is compared with

    def pin(self) -> ReplyBatch:
        return ReplyBatch(*(tensor.pin_memory() for tensor in self))

    def to(self, device: torch.device) -> ReplyBatch:
        return ReplyBatch(*(tensor.to(device, non_blocking=True) for tensor in self))

    def share(self, part: slice) -> ReplyBatch:
        """Some of the rows, compared with the candidates of all."""
        return ReplyBatch(*(tensor[part] for tensor in self))

    def rows(self, part: slice) -> ReplyBatch:
        """Some of the rows, compared with each other only."""
        own = self.share(part)
        return own._replace(allowed=own.allowed[:, part], place=torch.arange(len(own.questions)))
