"""A tagger: an encoder with a linear layer on the hidden state of the first token of each word, and optionally a CRF.

A word of several tokens is labeled at its first one, as in BERT (Devlin et al., 2019): in an encoder its hidden state depends
on the other tokens of the word as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from heedful.nn.crf import Crf
from heedful.nn.dropout import Dropout
from heedful.nn.losses import Loss
from heedful.nn.model import EncoderModel, ModelWithHead
from heedful.nn.pack_left import gather_time
from heedful.tasks.spelling import BYTES

PADDING = -100  # in labels: no word


class TaggingModel(ModelWithHead):
    """An encoder with a label for each word."""

    body: EncoderModel

    def __init__(self, body: EncoderModel, dim: int, labels: int, dropout: float, crf: Crf | None) -> None:
        super().__init__()
        self.body = body
        self.dropout = Dropout(dropout)
        self.head = nn.Linear(dim, labels)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)
        self.crf = crf

    def forward(self, tokens: Tensor, mask: Tensor | None, first: Tensor, spelling: Tensor) -> Tensor:
        """tokens (rows, time), or vectors (rows, time, features); mask (rows, time): True for real tokens; first (rows, words):
        position of the first token of each word; spelling (rows, time, bytes), no bytes: the model reads none
        -> logits (rows, words, labels)."""
        more: dict[str, Any] = {"spelling": spelling} if spelling.shape[-1] else {}
        hidden = self.body.encode(tokens, mask, **more)  # (rows, time, dim)
        return self.classify(gather_time(hidden, first))

    def classify(self, words: Tensor) -> Tensor:
        """Hidden states of words (…, dim) -> logits (…, labels)."""
        logits: Tensor = self.head(self.dropout(words))
        return logits

    def losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """-log p of the labels of each row: logits (rows, words, labels), labels (rows, words) -> (rows,)."""
        if self.crf is not None:
            return self.crf.losses(logits, labels.clamp_min(0), labels != PADDING)
        flat = functional.cross_entropy(logits.float().transpose(1, 2), labels, ignore_index=PADDING, reduction="none")
        return flat.sum(1)

    def loss(self, logits: Tensor, labels: Tensor) -> Loss:
        """The sum over words; padding is not counted."""
        return Loss(self.losses(logits, labels).sum(), (labels != PADDING).sum())

    def log_probabilities(self, logits: Tensor, real: Tensor) -> Tensor:
        """The log-probability of each label of each word: (rows, words, labels); with a CRF, over all label sequences."""
        return logits.float().log_softmax(-1) if self.crf is None else self.crf.marginals(logits, real)

    def decode(self, logits: Tensor, real: Tensor) -> Tensor:
        """The best labels (rows, words); with a CRF, the best label sequence."""
        return logits.argmax(-1) if self.crf is None else self.crf.decode(logits, real)

    def batch_logits(self, source: Tensor, target: Tensor) -> Tensor:
        """Every token is a word, with an empty spelling; a model of vectors is given zeros: (rows, time, labels)."""
        config, (rows, time) = self.body.config, target.shape
        tokens = torch.zeros(rows, time, config.numeric_inputs, device=target.device) if config.numeric_inputs else target
        spelling = target.new_zeros(rows, time, BYTES if config.reads_spelling else 0)
        return self(tokens, None, torch.arange(time, device=target.device).expand(rows, -1), spelling)

    if TYPE_CHECKING:
        __call__ = forward
