"""Tokens in another order: the real ones first, and back again."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class PackedOrder(NamedTuple):
    """New tokens with the real ones first."""

    order: Tensor  # (rows, time): which token stands here now
    back: Tensor  # (rows, time): where each token stands now
    real: Tensor  # (rows,): how many are


def pack_left_order(mask: Tensor) -> PackedOrder:
    """mask (rows, time): which tokens are real."""
    places = torch.arange(mask.shape[1], device=mask.device)
    order = torch.where(mask, places, places + mask.shape[1]).argsort(1)
    return PackedOrder(order, order.argsort(1), mask.sum(1))


def gather_time(x: Tensor, places: Tensor) -> Tensor:
    """x (rows, time) or (rows, time, dim), places (rows, new) -> what stands there: (rows, new) or (rows, new, dim)."""
    return x.gather(1, places if x.dim() == 2 else places[..., None].expand(-1, -1, x.shape[2]))
