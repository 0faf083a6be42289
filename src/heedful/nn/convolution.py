"""Convolution over time: every output is a linear map of the k inputs in its window, spaced by the dilation d.

    centered    y_t = W [x_{t - r/2}; …; x_t; …; x_{t + r/2}] + b        r = (k - 1) d, the reach; zeros beyond both ends
    causal      y_t = W [x_{t - r}; …; x_{t - d}; x_t] + b               the last of the k inputs is the current one

For decoding token by token, the state is the last r inputs (rows, reach, dim), initially zeros. Padding is moved behind the
real tokens first (`nn/pack_left.py`), where causal convolution does not read it.
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
        """Distance from the first input of a window to the last."""
        return (self.kernel - 1) * self.dilation

    def windows(self, x: Tensor) -> Tensor:
        """(rows, reach + time, inputs) -> (rows, time, kernel x inputs)."""
        time = x.shape[1] - self.reach
        return torch.cat([x[:, begin : begin + time] for begin in range(0, self.reach + 1, self.dilation)], dim=-1)

    def centered(self, x: Tensor) -> Tensor:
        """(rows, time, inputs) -> (rows, time, outputs); padding must be zero."""
        before = self.reach // 2
        return self.map(self.windows(functional.pad(x, (0, 0, before, self.reach - before))))

    def causal(self, x: Tensor, row_state: Tensor, count: Tensor | None) -> tuple[Tensor, Tensor]:
        """(rows, time, inputs) -> (rows, time, outputs), and the state after `count` (rows,) tokens of x, None: all."""
        joined = torch.cat((row_state, x), dim=1)  # (rows, reach + time, inputs)
        if count is None:
            kept = joined[:, x.shape[1] :]
        else:
            last = count[:, None] + torch.arange(self.reach, device=x.device)  # (rows, reach)
            kept = gather_time(joined, last)
        return self.map(self.windows(joined)), kept

    def initial_state(self, rows: int, like: Tensor) -> Tensor:
        """The state before the first token."""
        return like.new_zeros(rows, self.reach, self.inputs)


def with_weight_norm(layer: Linear, std: float) -> Linear:
    """Weight normalization (Salimans and Kingma, 2016): w = gain v / |v| for each output; std: of the initial v."""
    nn.init.normal_(layer.weight, std=std)
    weight_norm(layer)
    return layer
