"""A linear-chain conditional random field over the labels of a sentence (Lafferty et al., 2001).

    score(y) = start(y_1) + sum_t emission_t(y_t) + sum_t transition(y_t-1, y_t) + end(y_n)
    log p(y) = score(y) - log sum_y' exp score(y')

The sum over all label sequences is computed by the forward algorithm, the best sequence by Viterbi's, and the probability of
each label by the forward-backward algorithm. Transitions that are not allowed have the score -inf. Real words come first in a
row, then padding, which has no influence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Allowed(NamedTuple):
    """The label sequences that are allowed."""

    starts: Sequence[bool]  # (labels): of the first word
    pairs: Sequence[Sequence[bool]]  # (labels, labels): from, to


class Crf(nn.Module):
    """Scores of transitions between labels; the scores of words, the emissions, are given."""

    starts: Tensor
    pairs: Tensor

    def __init__(self, labels: int, allowed: Allowed | None = None) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(labels, labels))  # from, to
        self.start = nn.Parameter(torch.zeros(labels))
        self.end = nn.Parameter(torch.zeros(labels))
        given = allowed or Allowed([True] * labels, [[True] * labels] * labels)
        self.register_buffer("starts", torch.tensor(given.starts), persistent=False)
        self.register_buffer("pairs", torch.tensor(given.pairs), persistent=False)

    def scores(self) -> tuple[Tensor, Tensor]:
        """The scores of the first label (labels,) and of transitions (labels, labels), -inf where they are not allowed."""
        start = self.start.float().masked_fill(~self.starts, -math.inf)
        return start, self.transitions.float().masked_fill(~self.pairs, -math.inf)

    def losses(self, emissions: Tensor, labels: Tensor, real: Tensor) -> Tensor:
        """-log p of the labels: emissions (rows, time, labels), labels (rows, time), real (rows, time) -> (rows,); 0 for a row
        without words."""
        emissions = emissions.float()
        return (self.log_partition(emissions, real) - self.score(emissions, labels, real)) * real[:, 0]

    def score(self, emissions: Tensor, labels: Tensor, real: Tensor) -> Tensor:
        """The score of given labels: (rows,). Labels of padding may be any valid ones."""
        start, transitions = self.scores()
        words = emissions.gather(2, labels[..., None]).squeeze(-1)  # (rows, time)
        pairs = transitions[labels[:, :-1], labels[:, 1:]].masked_fill(~real[:, 1:], 0.0)  # (rows, time - 1)
        last = labels.gather(1, (real.sum(1, keepdim=True) - 1).clamp_min(0)).squeeze(1)  # (rows,)
        first = start[labels[:, 0]].masked_fill(~real[:, 0], 0.0)
        return first + words.masked_fill(~real, 0.0).sum(1) + pairs.sum(1) + self.end.float()[last]

    def forward_scores(self, emissions: Tensor, real: Tensor) -> list[Tensor]:
        """For each word the log of the sum over all beginnings that end with each label: time x (rows, labels)."""
        start, transitions = self.scores()
        scores = [start + emissions[:, 0]]
        for t in range(1, emissions.shape[1]):
            new = (scores[-1][:, :, None] + transitions).logsumexp(1) + emissions[:, t]  # (rows, labels)
            scores.append(torch.where(real[:, t, None], new, scores[-1]))
        return scores

    def log_partition(self, emissions: Tensor, real: Tensor) -> Tensor:
        """log sum exp score over all label sequences: (rows,)."""
        return (self.forward_scores(emissions, real)[-1] + self.end.float()).logsumexp(-1)

    def marginals(self, emissions: Tensor, real: Tensor) -> Tensor:
        """The log-probability of each label of each word, over all label sequences: (rows, time, labels)."""
        emissions = emissions.float()
        _, transitions = self.scores()
        after = [self.end.float().expand_as(emissions[:, 0])]  # the log of the sum over all continuations, last word first
        for t in range(emissions.shape[1] - 1, 0, -1):
            new = (transitions + (emissions[:, t] + after[-1])[:, None, :]).logsumexp(2)  # (rows, labels)
            after.append(torch.where(real[:, t, None], new, after[-1]))
        both = torch.stack(self.forward_scores(emissions, real), 1) + torch.stack(after[::-1], 1)
        return both.log_softmax(-1)

    def decode(self, emissions: Tensor, real: Tensor) -> Tensor:
        """The best label sequence (Viterbi): (rows, time); at padding the last label is repeated."""
        emissions = emissions.float()
        start, transitions = self.scores()
        best = start + emissions[:, 0]  # (rows, labels)
        same = torch.arange(best.shape[1], device=best.device).expand_as(best)
        pointers = []
        for t in range(1, emissions.shape[1]):
            score, previous = (best[:, :, None] + transitions).max(1)  # (rows, labels)
            best = torch.where(real[:, t, None], score + emissions[:, t], best)
            pointers.append(torch.where(real[:, t, None], previous, same))
        path = [(best + self.end.float()).argmax(-1)]  # (rows,)
        for previous in reversed(pointers):
            path.append(previous.gather(1, path[-1][:, None]).squeeze(1))
        return torch.stack(path[::-1], 1)
