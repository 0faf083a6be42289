"""Sentence embeddings: an encoder, pooling, and vectors of length 1 (Reimers and Gurevych, 2019).

    v = p / |p|              p: the mean of the hidden states, their mean weighted by attention, or the state of the first token

    loss_i = -log exp(a_i . c_i / T) / sum_j exp(a_i . c_j / T)        InfoNCE (van den Oord et al., 2018)

a: anchors; c: candidates, the positives of all rows of a batch and their hard negatives; T: temperature (Gao et al., 2021).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from torch import Tensor
from torch.nn import functional

from heedful.nn.model import EncoderModel, ModelWithHead, PoolingAttention
from heedful.nn.pooling import AttentionPooling, mean

PoolingName = Literal["mean", "cls"]  # those without weights, which fit any encoder
TrainedPooling = PoolingName | Literal["attention"]
POOLINGS: dict[PoolingName, Callable[[EncoderModel, Tensor, Tensor | None], Tensor]] = {
    "mean": lambda body, hidden, mask: mean(hidden, mask),
    "cls": lambda body, hidden, mask: body.first_state(hidden),
}


class EmbeddingModel(ModelWithHead):
    """An encoder of texts as vectors; its head has no weights, except those of attention pooling."""

    body: EncoderModel

    def __init__(self, body: EncoderModel, pooling: TrainedPooling) -> None:
        super().__init__()
        self.body, self.pooling = body, pooling
        self.attention_pooling = AttentionPooling(body.config.dim) if pooling == "attention" else None

    def forward(self, tokens: Tensor, mask: Tensor | None = None, *, pooling: PoolingName | None = None) -> Tensor:
        """tokens (texts, time), mask (texts, time): True for real tokens, None: no padding -> vectors (texts, dim); pooling:
        default: that of the model."""
        return self.pool(self.body.encode(tokens, mask), mask, pooling)

    def pool(self, hidden: Tensor, mask: Tensor | None, pooling: PoolingName | None = None) -> Tensor:
        """Hidden states (texts, time, dim) -> vectors (texts, dim)."""
        name = pooling or self.pooling
        if name == "attention":
            assert self.attention_pooling is not None, "the pooling of the model"
            pooled = self.attention_pooling(hidden, mask)
        else:
            pooled = POOLINGS[name](self.body, hidden, mask)
        return functional.normalize(pooled.float(), dim=-1)

    def poolings(self) -> list[PoolingAttention]:
        own = self.attention_pooling
        return super().poolings() if own is None else [PoolingAttention("words", self.path_of(own.weights))]

    def batch_logits(self, source: Tensor, target: Tensor) -> Tensor:
        """The similarities of all texts: (rows, rows)."""
        vectors = self(target)
        return vectors @ vectors.T

    if TYPE_CHECKING:
        __call__ = forward


def contrastive_losses(anchors: Tensor, candidates: Tensor, allowed: Tensor, place: Tensor, temperature: float) -> Tensor:
    """anchors (rows, dim); candidates (all rows, 1 + negatives, dim): the positive of each row, then its hard negatives;
    allowed (rows, all rows, 1 + negatives): True for candidates that a row is compared with; place (rows,): of each row among
    all -> losses (rows,)."""
    logits = anchors @ candidates.flatten(0, 1).T / temperature  # (rows, all rows x (1 + negatives))
    logits = logits.masked_fill(~allowed.flatten(1), -math.inf)
    return functional.cross_entropy(logits, place * candidates.shape[1], reduction="none")
