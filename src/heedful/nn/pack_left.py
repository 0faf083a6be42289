"""Reordering of tokens: real tokens first, padding last, and the inverse."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class PackedOrder(NamedTuple):
    """Indices that move real tokens to the front."""

    order: Tensor  # (rows, time): old index of the token at each new place
    back: Tensor  # (rows, time): new index of each token
    real: Tensor  # (rows,): number of real tokens


def pack_left_order(mask: Tensor) -> PackedOrder:
    """mask (rows, time): True for real tokens."""
    places = torch.arange(mask.shape[1], device=mask.device)
    order = torch.where(mask, places, places + mask.shape[1]).argsort(1)
    return PackedOrder(order, order.argsort(1), mask.sum(1))


def gather_time(x: Tensor, places: Tensor) -> Tensor:
    """x (rows, time) or (rows, time, dim), places (rows, new): indices -> (rows, new) or (rows, new, dim)."""
    return x.gather(1, places if x.dim() == 2 else places[..., None].expand(-1, -1, x.shape[2]))
