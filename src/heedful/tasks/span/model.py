"""Extractive question answering (Devlin et al., 2019): which tokens of a text are the first and the last one of the answer.

    [start question end context end]  ->  h  ->  p(first = i) = softmax_i(u . h_i),  p(last = j) = softmax_j(v . h_j)

Choices are the tokens of the context and the start token, which means that this window of the context has no answer.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from heedful.nn.model import EncoderModel, ModelWithHead

INITIAL_STD = 0.02


class SpanModel(ModelWithHead):
    """An encoder with logits of the first and the last token of an answer."""

    body: EncoderModel

    def __init__(self, body: EncoderModel, dim: int) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(dim, 2)
        nn.init.normal_(self.head.weight, std=INITIAL_STD)
        nn.init.zeros_(self.head.bias)

    def forward(self, tokens: Tensor, mask: Tensor | None, segments: Tensor, choices: Tensor) -> Tensor:
        """tokens, mask and segments (rows, time) as in `encode`; choices (rows, time): True for tokens that can be chosen
        -> logits of the first and the last token, (rows, 2, time)."""
        hidden = self.body.encode(tokens, mask, segments=segments)  # (rows, time, dim)
        logits = self.project(hidden).float().transpose(1, 2)  # (rows, 2, time)
        return logits.masked_fill(~choices[:, None], -math.inf)

    def project(self, hidden: Tensor) -> Tensor:
        """Hidden states (rows, time, dim) -> logits (rows, time, 2)."""
        logits: Tensor = self.head(hidden)
        return logits

    def batch_logits(self, source: Tensor, target: Tensor) -> Tensor:
        """Every token can be chosen: (rows, 2, time)."""
        return self.project(self.body.encode(target)).transpose(1, 2)

    if TYPE_CHECKING:
        __call__ = forward


def span_losses(logits: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """The mean of -log p(first) and -log p(last) of each row: logits (rows, 2, time), first and last (rows,) -> (rows,)."""
    return (
        functional.cross_entropy(logits.flatten(0, 1), torch.stack((first, last), 1).flatten(), reduction="none")
        .view(-1, 2)
        .mean(1)
    )


class BestSpans(NamedTuple):
    log_probability: Tensor  # (rows,)
    first: Tensor  # (rows,)
    last: Tensor  # (rows,)


def best_spans(logits: Tensor, most: int) -> BestSpans:
    """The most probable span of each row, of at most `most` tokens and without the start token: logits (rows, 2, time)."""
    first, last = logits.log_softmax(-1).unbind(1)  # (rows, time) each
    first = first.index_fill(1, torch.zeros(1, dtype=torch.int64, device=first.device), -math.inf)
    time = first.shape[1]
    lengths = range(min(most, time))
    ends = torch.stack([functional.pad(last[:, more:], (0, more), value=-math.inf) for more in lengths], 1)
    scores = (first[:, None] + ends).flatten(1)  # (rows, lengths x time)
    best = scores.max(1)
    start = best.indices % time
    return BestSpans(best.values, start, start + best.indices // time)
