"""Losses of whole sequences: what candidates y are worth, r(y), decides how likely they should become.

    reward   -E[r] over what the model says. Its gradient is that of -mean_k (r(y_k) - b_k) log P(y_k) over draws y_k;
             b_k, the mean of the other draws' rewards, does not depend on y_k, so it changes the variance and not the mean
             ("Google's Neural Machine Translation System", Wu et al., 2016)
    risk     sum_y Q(y) (1 - r(y)) over a set of candidates, Q(y) = P(y)^alpha / sum_y' P(y')^alpha, differentiated as it
             stands ("Minimum Risk Training for Neural Machine Translation", Shen et al., 2016)

With every sequence there is in the set, and alpha 1, both have one gradient: that of the exact expectation.
"""

from __future__ import annotations

import math

from torch import Tensor


def reward_loss(log_probability: Tensor, rewards: Tensor, times: Tensor) -> Tensor:
    """All (sources, candidates); times: how often a candidate was drawn, 0: never. -> (sources,)

    The value is no estimate of anything, only its gradient is."""
    draws = times.sum(1, keepdim=True)  # (sources, 1)
    others = ((times * rewards).sum(1, keepdim=True) - rewards) / (draws - 1)
    return -(times / draws * (rewards - others) * log_probability).sum(1)


def risk_loss(log_probability: Tensor, rewards: Tensor, there: Tensor, alpha: float) -> Tensor:
    """All (sources, candidates); there: which of the places hold a candidate. -> (sources,)"""
    sharpened = (alpha * log_probability).masked_fill(~there, -math.inf).softmax(1)
    return (sharpened * (1 - rewards)).sum(1)
