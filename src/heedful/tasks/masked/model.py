"""The head of masked language modeling (Devlin et al., 2019): logits of the chosen tokens only.

logits = norm(gelu(W h)) E^T + b             E: the token embeddings of the encoder
next-sentence logits = U first_state         first_state: of [CLS], through the encoder's pooler if it has one
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from heedful.nn.linear import Readout, linear
from heedful.nn.model import EncoderModel, ModelWithHead

INITIAL_STD = 0.02
NORM_EPS = 1e-12  # as published


def prediction_slots(rate: float, time: int) -> int:
    """The number of tokens that are chosen in a sequence of `time` tokens at most; the first of them is [CLS]."""
    return max(1, round(rate * (time - 1)))


class MaskedModel(ModelWithHead):
    """An encoder that predicts tokens in place."""

    body: EncoderModel

    def __init__(self, body: EncoderModel, dim: int, rate: float, *, next_sentence: bool) -> None:
        super().__init__()
        self.body = body
        self.rate = rate
        self.dense = linear(dim, dim)
        self.norm = nn.LayerNorm(dim, NORM_EPS)
        self.readout = Readout(body.embedding)
        self.bias = nn.Parameter(torch.zeros(body.embedding.num_embeddings))
        self.next_sentence = linear(dim, 2) if next_sentence else None
        for layer in (self.dense, self.next_sentence):
            if layer is not None:
                nn.init.normal_(layer.weight, std=INITIAL_STD)

    def forward(
        self, tokens: Tensor, places: Tensor, mask: Tensor | None = None, segments: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """tokens (rows, time), places (rows, slots): positions to predict; mask and segments as in `encode`
        -> logits (rows, slots, vocab), hidden (rows, time, dim)."""
        hidden = self.body.encode(tokens, mask, segments=segments)
        chosen = hidden.gather(1, places[..., None].expand(-1, -1, hidden.shape[-1]))  # (rows, slots, dim)
        return self.project(chosen), hidden

    def project(self, hidden: Tensor) -> Tensor:
        """Hidden states (…, dim) -> logits (…, vocab)."""
        logits = self.readout(self.norm(functional.gelu(self.dense(hidden))))
        return logits + self.bias.to(logits.dtype)

    def next_logits(self, hidden: Tensor) -> Tensor:
        """Hidden states (rows, time, dim) -> logits that the second text continues the first, or does not: (rows, 2)."""
        assert self.next_sentence is not None, "the task predicts the next sentence"
        return self.next_sentence(self.body.first_state(hidden))

    def batch_logits(self, source: Tensor, target: Tensor) -> Tensor:
        """Of as many tokens as training chooses: (rows, slots, vocab)."""
        slots = prediction_slots(self.rate, target.shape[1])
        return self(target, torch.arange(slots, device=target.device).expand(target.shape[0], slots))[0]

    if TYPE_CHECKING:
        __call__ = forward
