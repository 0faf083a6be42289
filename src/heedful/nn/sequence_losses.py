"""Sequence-level losses: candidates y are weighted by their reward r(y).

    reward   -E[r] over the model's distribution. Its gradient is that of -mean_k (r(y_k) - b_k) log P(y_k) over samples y_k;
             b_k, the mean reward of the other samples, does not depend on y_k, so it changes the variance and not the mean
             ("Google's Neural Machine Translation System", Wu et al., 2016)
    risk     sum_y Q(y) (1 - r(y)) over a set of candidates, Q(y) = P(y)^alpha / sum_y' P(y')^alpha, differentiated
             exactly ("Minimum Risk Training for Neural Machine Translation", Shen et al., 2016)

With all possible sequences in the set and alpha 1, both have the gradient of the exact expectation.
"""

from __future__ import annotations

import math

from torch import Tensor


def reward_loss(log_probability: Tensor, rewards: Tensor, times: Tensor) -> Tensor:
    """All arguments (sources, candidates); times: how often a candidate was sampled -> (sources,).

    Only the gradient is meaningful, not the value."""
    draws = times.sum(1, keepdim=True)  # (sources, 1)
    others = ((times * rewards).sum(1, keepdim=True) - rewards) / (draws - 1)
    return -(times / draws * (rewards - others) * log_probability).sum(1)


def risk_loss(log_probability: Tensor, rewards: Tensor, mask: Tensor, alpha: float) -> Tensor:
    """All arguments (sources, candidates); mask: False for padding -> (sources,)."""
    sharpened = (alpha * log_probability).masked_fill(~mask, -math.inf).softmax(1)
    return (sharpened * (1 - rewards)).sum(1)
