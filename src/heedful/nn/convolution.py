"""Convolution over time: every output is a linear map of the k inputs in its window, which may stand apart (dilation d).

    around    y_t = W [x_{t - r/2}; …; x_t; …; x_{t + r/2}] + b        r = (k - 1) d, the reach; beyond both ends: zeros
    follow    y_t = W [x_{t - r}; …; x_{t - d}; x_t] + b               causal: the last of the k is the present one

Whoever is fed token by token keeps the last r inputs of a layer, its past (rows, reach, dim); zeros are the beginning.
Tokens that are not real are moved behind the real ones first (`line_up`), where a causal layer does not see them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

from heedful.nn.linear import Linear, linear
from heedful.nn.pack_left import gather_time


class Convolution(nn.Module):
    def __init__(self, inputs: int, outputs: int, kernel: int, dilation: int = 1) -> None:
        super().__init__()
        self.inputs, self.kernel, self.dilation = inputs, kernel, dilation
        self.map = linear(kernel * inputs, outputs)

    @property
    def reach(self) -> int:
        """From the first input of a window to the last."""
        return (self.kernel - 1) * self.dilation

    def windows(self, x: Tensor) -> Tensor:
        """(rows, reach + time, inputs) -> (rows, time, kernel x inputs)."""
        time = x.shape[1] - self.reach
        return torch.cat([x[:, begin : begin + time] for begin in range(0, self.reach + 1, self.dilation)], dim=-1)

    def around(self, x: Tensor) -> Tensor:
        """(rows, time, inputs) -> (rows, time, outputs); what is not real must be zero."""
        before = self.reach // 2
        return self.map(self.windows(functional.pad(x, (0, 0, before, self.reach - before))))

    def follow(self, x: Tensor, row_state: Tensor, count: Tensor | None) -> tuple[Tensor, Tensor]:
        """As `around`, without looking ahead; also the past, grown by the first `count` (rows,) of x, None: by all."""
        joined = torch.cat((row_state, x), dim=1)  # (rows, reach + time, inputs)
        if count is None:
            kept = joined[:, x.shape[1] :]
        else:
            last = count[:, None] + torch.arange(self.reach, device=x.device)  # (rows, reach)
            kept = gather_time(joined, last)
        return self.map(self.windows(joined)), kept

    def beginning(self, rows: int, like: Tensor) -> Tensor:
        """The past of those who have heard nothing."""
        return like.new_zeros(rows, self.reach, self.inputs)


def normed(made: Linear, std: float) -> Linear:
    """Weight normalization (Salimans and Kingma, 2016): w = gain v / |v| for each output; v begins with this deviation."""
    nn.init.normal_(made.weight, std=std)
    weight_norm(made)
    return made
