"""A classifier: a model that encodes a text, pooling, and a linear layer.

decoder    the hidden state of the last token, which attends to all others (GPT-1: Radford et al., 2018)
encoder    the hidden states of all tokens, pooled (BERT: Devlin et al., 2019, the first one)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from heedful.models.family import Architecture
from heedful.nn.dropout import Dropout
from heedful.nn.model import EncoderModel, Model, ModelWithHead, PoolingAttention, SequenceModel
from heedful.nn.pooling import AttentionPooling, Pooling
from heedful.tasks.classification.batch import LabeledBatch
from heedful.tasks.spelling import BYTES

Reader = Callable[[Any, LabeledBatch, Tensor | None], Tensor]  # model, batch, mask -> hidden (rows, time, dim)


def read_forward(model: SequenceModel, batch: LabeledBatch, mask: Tensor | None) -> Tensor:
    return model.forced(None, None, batch.tokens).hidden  # padding comes after all tokens that matter


def read_both_ways(model: EncoderModel, batch: LabeledBatch, mask: Tensor | None) -> Tensor:
    more: dict[str, Tensor] = {"spelling": batch.spelling} if batch.spelling.shape[-1] else {}
    return model.encode(batch.tokens, mask, segments=batch.segments, **more)


READERS: dict[Architecture, Reader] = {"decoder": read_forward, "encoder": read_both_ways}


def label_loss(logits: Tensor, labels: Tensor, weights: Tensor | None, smoothing: float = 0.0) -> Tensor:
    """The sum over examples of -log p of their labels; labels as in `LabeledBatch`; weights (labels,), None: all are 1;
    smoothing: as `label_smoothing`."""
    if labels.ndim == 1:
        return functional.cross_entropy(logits.float(), labels, weights, reduction="sum", label_smoothing=smoothing)
    labels = labels * (1 - smoothing) + smoothing / 2
    total = functional.binary_cross_entropy_with_logits(logits.float(), labels, pos_weight=weights, reduction="sum")
    return total / labels.shape[1]  # the mean over labels


class ClassificationModel(ModelWithHead):
    """A model with a classification head."""

    body: Any  # a SequenceModel or an EncoderModel, according to `read`

    def __init__(self, body: Model, dim: int, choices: int, *, dropout: float, read: Reader, pool: Pooling | None) -> None:
        """pool: None: the state of the first token."""
        super().__init__()
        self.body = body
        self.read, self.pool = read, pool
        self.dropout = Dropout(dropout)
        self.head = nn.Linear(dim, choices)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    def forward(self, batch: LabeledBatch) -> tuple[Tensor, Tensor]:
        """Logits (examples, choices), hidden states (examples x group, time, dim)."""
        mask = batch.mask
        hidden = self.read(self.body, batch, mask)
        features = self.dropout(self.features(hidden, mask))
        features = features.view(-1, batch.group, features.shape[-1])  # (examples, group, dim)
        if self.head.out_features == 1:
            return self.head(features).squeeze(-1), hidden  # a score for each answer
        return self.head(features.sum(1)), hidden

    def features(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """Hidden states of sequences (rows, time, dim) -> (rows, dim)."""
        if self.pool is None:
            first: Tensor = self.body.first_state(hidden)
            return first
        return self.pool(hidden, mask)

    def poolings(self) -> list[PoolingAttention]:
        """Of the body, if it pools its states itself; else of its head."""
        own = [PoolingAttention("words", self.path_of(self.pool.weights))] if isinstance(self.pool, AttentionPooling) else []
        return super().poolings() or own

    def batch_logits(self, source: Tensor, target: Tensor) -> Tensor:
        """One sequence for each example, with empty spellings: (rows, choices)."""
        rows, time = target.shape
        last = target.new_full((rows,), time - 1)
        spelling = target.new_zeros(rows, time, BYTES if self.body.config.reads_spelling else 0)
        return self(LabeledBatch(target, torch.zeros_like(target), last, last, spelling, last))[0]

    if TYPE_CHECKING:
        __call__ = forward
