"""Confidence of a head: the mean over queries of its largest attention weight (Voita et al., 2019).

    confidence = mean_i max_j weights_ij        j: tokens of the sentence, without start, end and padding

A uniform head over m tokens has 1/m, a head with all weight on one token 1, a head with all weight on the end token 0.
"""

from __future__ import annotations

from torch import Tensor


def summed_confidence(weights: Tensor) -> Tensor:
    """weights (heads, query, key) without columns of special tokens -> largest weights summed over the queries: (heads,)."""
    return weights.amax(-1).sum(-1)
