"""Coverage penalty: how much attention each source token receives ("Google's Neural Machine Translation System", Wu et al.,
2016).

    cp = sum_i log min(sum_j p_ij, 1)        p_ij: attention from the step that predicts target token j to source token i

It is 0 if every source token receives a total attention of at least 1, and falls with every token that receives less. The
weights are the mean over all heads and layers in one teacher-forced pass over the finished translations.
"""

from __future__ import annotations

import torch
from torch import Tensor

from heedful.inspection.alignment import cross_weights
from heedful.inspection.attention_maps import StepModel

LEAST = 1e-4  # floor of the total attention, so that one uncovered token does not cost infinity


def coverage(weights: Tensor, token_mask: Tensor) -> Tensor:
    """weights (rows, target time, source time), token_mask (rows, target time): True for tokens, False for padding
    -> cp (rows,)."""
    totals = (weights * token_mask[..., None]).sum(1)  # (rows, source time)
    return totals.clamp(LEAST, 1.0).log().sum(-1)


def coverage_of(model: StepModel, source: Tensor, target_in: Tensor, lengths: Tensor) -> Tensor:
    """Return the coverage of several translations of one source: source (time,) with the end token, which need not be covered;
    target_in (rows, target time), lengths (rows,): tokens of each row without padding -> cp (rows,)."""
    layers = cross_weights(model, source.expand(len(target_in), -1), None, target_in).values()
    weights = torch.stack([heads.mean(1) for heads in layers]).mean(0)  # (rows, target time, source time)
    token_mask = torch.arange(target_in.shape[1], device=lengths.device) < lengths[:, None]
    return coverage(weights[..., :-1], token_mask)
