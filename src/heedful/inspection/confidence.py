"""How sure a head is of where to look: the mean over tokens of its largest weight (Voita et al., 2019).

    confidence = mean_i max_j weights_ij        j: real tokens; the marks around a sentence do not count

A head that spreads its weight over m tokens has 1/m, one that points at a word has 1, one that parks on the end has 0.
"""

from __future__ import annotations

from torch import Tensor


def summed_confidence(weights: Tensor) -> Tensor:
    """(heads, query, key), the columns of marks left out -> the largest weights, added up over the queries: (heads,)."""
    return weights.amax(-1).sum(-1)
