"""A classifier: a language model with a linear layer on the hidden state of the last token (GPT-1: Radford et al., 2018)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from heedful.nn.dropout import Dropout
from heedful.nn.model import ModelWithHead, SequenceModel


class ClassificationModel(ModelWithHead):
    """A language model with a classification head."""

    body: SequenceModel

    def __init__(self, body: SequenceModel, dim: int, choices: int, dropout: float) -> None:
        super().__init__()
        self.body = body
        self.dropout = Dropout(dropout)
        self.head = nn.Linear(dim, choices)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    def forward(self, tokens: Tensor, last: Tensor, group: int) -> tuple[Tensor, Tensor]:
        """tokens (examples x group, time), last (examples x group,): index of each sequence's last token
        -> logits (examples, choices), hidden (examples x group, time, dim)."""
        hidden = self.body.forced(None, None, tokens).hidden
        features = self.dropout(hidden[torch.arange(len(tokens), device=tokens.device), last])
        features = features.view(-1, group, features.shape[-1])  # (examples, group, dim)
        if self.head.out_features == 1:
            return self.head(features).squeeze(-1), hidden  # a score for each answer
        return self.head(features.sum(1)), hidden

    def batch_logits(self, source: Tensor, target: Tensor) -> Tensor:
        """One sequence for each example: (rows, choices)."""
        return self(target, target.new_full(target.shape[:1], target.shape[1] - 1), 1)[0]

    if TYPE_CHECKING:
        __call__ = forward
