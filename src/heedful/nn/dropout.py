"""Dropout: keep each element with probability 1 - p and divide it by 1 - p (Srivastava et al., 2014).

On a CPU, torch draws one random number per element, which costs more than the matrix products around it. Here one 64-bit
draw serves four elements, 16 bits each, so p is exact to within 2^-16. Other devices use torch's own kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

STEPS = 2**16


def keep_mask(x: Tensor, probability: float) -> Tensor:
    """A tensor of x's shape with elements 0 with the given probability, else 1 / (1 - probability)."""
    draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    bits = draws.view(torch.int16)[: x.numel()].view(x.shape)
    least = min(round(probability * STEPS) - STEPS // 2, STEPS // 2 - 1)
    kept = torch.ge(bits, least, out=torch.empty_like(x))  # 1 or 0 in x's dtype, without an intermediate boolean tensor
    return kept.mul_(1 / (1 - probability))


class Dropout(nn.Module):
    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.probability == 0.0:
            return x
        if x.device.type == "cpu" and not torch.compiler.is_compiling():
            return x * keep_mask(x, self.probability)
        return functional.dropout(x, self.probability)

    def extra_repr(self) -> str:
        return f"{self.probability}"

    if TYPE_CHECKING:
        __call__ = forward
