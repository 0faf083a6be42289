"""Coverage: how much of a source was looked at while a translation was said ("Google's Neural Machine Translation System",
Wu et al., 2016).

    cp = sum_i log min(sum_j p_ij, 1)        p_ij: how much was looked at source token i when target token j was said

It is 0 where every source token got a look's worth of attention, and falls with each that was passed over. What is looked
at comes from one forced pass over the finished translations, the mean of all heads and layers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from heedful.inspection.alignment import cross_weights
from heedful.inspection.attention_maps import StepModel

LEAST = 1e-4  # what a token is looked at even if it is not: it costs as much as many others, not everything


def coverage(weights: Tensor, said: Tensor) -> Tensor:
    """weights (rows, target time, source time), said (rows, target time): which tokens are real -> cp (rows,)."""
    looks = (weights * said[..., None]).sum(1)  # (rows, source time)
    return looks.clamp(LEAST, 1.0).log().sum(-1)


def coverage_of(model: StepModel, source: Tensor, target_in: Tensor, lengths: Tensor) -> Tensor:
    """Of several translations of one source: source (time,), the end as its last token, which need not be covered;
    target_in (rows, target time) with so many real tokens (rows,) -> cp (rows,)."""
    layers = cross_weights(model, source.expand(len(target_in), -1), None, target_in).values()
    weights = torch.stack([heads.mean(1) for heads in layers]).mean(0)  # (rows, target time, source time)
    said = torch.arange(target_in.shape[1], device=lengths.device) < lengths[:, None]
    return coverage(weights[..., :-1], said)
