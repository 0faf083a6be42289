"""An image classifier: a model that encodes images, the vector of each image, and a linear layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from heedful.nn.dropout import Dropout
from heedful.nn.model import EncoderModel, ModelWithHead


class ImageModel(ModelWithHead):
    body: EncoderModel

    def __init__(self, body: EncoderModel, dim: int, labels: int, *, dropout: float) -> None:
        super().__init__()
        self.body = body
        self.dropout = Dropout(dropout)
        self.head = nn.Linear(dim, labels)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    def forward(self, pixels: Tensor) -> Tensor:
        """pixels (rows, height, width, channels), 0 to 255 -> logits (rows, labels)."""
        return self.classify(self.body.encode(pixels))

    def classify(self, hidden: Tensor) -> Tensor:
        """Hidden states (rows, time, dim) -> logits (rows, labels)."""
        logits: Tensor = self.head(self.dropout(self.body.first_state(hidden)))
        return logits

    def batch_logits(self, source: Tensor, target: Tensor) -> Tensor:
        """Of black images, one for each row: (rows, labels)."""
        shape = self.body.config.image_shape
        return self(target.new_zeros(target.shape[0], *shape))

    if TYPE_CHECKING:
        __call__ = forward
