"""A classifier of series: an encoder of vectors, pooling over the steps, and a linear layer.

z_t = x_t - x_1      or x_t minus the mean over all steps: the start position is no input
logits = W pool(encode(z)) + b
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

import torch
from torch import Tensor, nn

from heedful.nn.dropout import Dropout
from heedful.nn.model import EncoderModel, ModelWithHead
from heedful.nn.pooling import POOLINGS, Pooling

NormalizationName = Literal["none", "first", "mean"]


class HeadOptions(Protocol):
    """The options of the model."""

    normalization: NormalizationName
    pooling: Literal["mean", "max", "last", "attention"]
    head_dropout: float


class SeriesModel(ModelWithHead):
    body: EncoderModel

    def __init__(self, body: EncoderModel, dim: int, labels: int, options: HeadOptions) -> None:
        super().__init__()
        self.body, self.normalization = body, options.normalization
        self.dropout = Dropout(options.head_dropout)
        self.pool: Pooling = POOLINGS[options.pooling](dim)
        self.head = nn.Linear(dim, labels)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """vectors (rows, time, variables), mask (rows, time), True for real steps -> logits (rows, labels)."""
        return self.classify(self.body.encode(self.normalize(vectors, mask), mask), mask)

    def classify(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        """Hidden states (rows, time, dim), mask (rows, time), None: no padding -> logits (rows, labels)."""
        logits: Tensor = self.head(self.dropout(self.pool(hidden, mask)))
        return logits

    def normalize(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """As vectors; padding is zero."""
        real = mask[..., None].to(vectors.dtype)  # (rows, time, 1)
        if self.normalization == "first":
            vectors = vectors - vectors[:, :1]
        elif self.normalization == "mean":
            first = vectors[:, :1]  # subtracted before the sum: far from the origin, the sum would lose digits
            near = (vectors - first) * real
            vectors = near - near.sum(1, keepdim=True) / real.sum(1, keepdim=True)
        return vectors * real

    def batch_logits(self, source: Tensor, target: Tensor) -> Tensor:
        """Of zeros, a series for each row: (rows, labels)."""
        vectors = self.head.weight.new_zeros(*target.shape, self.body.config.numeric_inputs)
        return self(vectors, torch.ones_like(target, dtype=torch.bool))

    if TYPE_CHECKING:
        __call__ = forward
