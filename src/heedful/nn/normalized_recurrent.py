"""Recurrent layers with layer normalization of the summed inputs of their gates (Ba et al., 2016).

    N(z) = a (z - mean(z)) / sqrt(variance(z) + eps)     mean and variance over the elements of z, for each row and step;
                                                         a is learned, one for each N below

    lstm    i, f, g, o = N(W x) + N(U h) + b             c <- sigmoid(f) c + sigmoid(i) tanh(g)     h <- sigmoid(o) tanh(N(c))
    gru     r, z = sigmoid(N(W x) + N(U h) + b)          n = tanh(N(W' x) + b' + r N(U' h))         h <- (1 - z) n + z h

Weights, bias and states are those of `nn/recurrent.py`. N has no bias of its own: that of the gates is b, and N(0) = 0 keeps a
state of zeros zero. No fused kernel computes this, so layers run step by step. Padding is skipped by its mask, not by inputs
of zero: the derivative of N at 0 is large, and a gradient would grow at every padded position.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from heedful.nn.recurrent import CellStep, Gru, Hidden, Layer, Lstm, add_bias_input, gru_cell
from heedful.nn.shared_weight_grad import shared_weight


class GateNorm(nn.Module):
    """Layer normalization of gates, of each group on its own."""

    def __init__(self, groups: tuple[int, ...]) -> None:
        super().__init__()
        self.groups = groups  # size of each group
        self.gain = nn.Parameter(torch.ones(sum(groups)))

    def forward(self, x: Tensor) -> Tensor:
        """(…, gates x dim) -> (…, gates x dim)."""
        parts = zip(x.split_with_sizes(self.groups, dim=-1), self.gain.split_with_sizes(self.groups), strict=True)
        normalized = [functional.layer_norm(part, gain.shape, gain.to(part.dtype)) for part, gain in parts]
        return normalized[0] if len(normalized) == 1 else torch.cat(normalized, dim=-1)

    if TYPE_CHECKING:
        __call__ = forward


class NormalizedLayer(Layer):
    """Base of normalized layers. Gates are complete once all of their inputs are known: W x of a layer with fed inputs is
    normalized in its step."""

    groups: ClassVar[tuple[int, ...]]  # numbers of gates that are normalized together

    def __init__(self, inputs: int, dim: int, fed: int = 0) -> None:
        super().__init__(inputs, dim, fed)
        sizes = tuple(gates * dim for gates in self.groups)
        self.input_norm, self.hidden_norm = GateNorm(sizes), GateNorm(sizes)

    def run(self, x: Tensor, state: Hidden | None, real: Tensor | None) -> tuple[Tensor, Hidden]:
        if torch.compiler.is_exporting():
            inputs = add_bias_input(x, real)  # (rows, time, inputs + 1)
            products = self.multiply_inputs(inputs[..., :-1])
            return self.scan_steps(self.input_norm(products) + inputs[..., -1:] * self.weight[:, -1], state)
        gates = self.project_inputs(x)
        return self.run_steps(gates, self.initial_state(x.shape[0], gates[0]) if state is None else state, real)

    def project_inputs(self, x: Tensor) -> tuple[Tensor, ...]:
        """N(W x) + b for all tokens, or W x if x lacks the fed inputs."""
        products = self.multiply_inputs(x)  # (rows, time, gates x dim)
        is_complete = x.shape[-1] + 1 == self.weight.shape[1]
        return (self.input_gates(products) if is_complete else products).unbind(1)

    def multiply_inputs(self, x: Tensor) -> Tensor:
        """W x, without the bias."""
        return functional.linear(x, self.weight[:, : x.shape[-1]])

    def input_gates(self, products: Tensor) -> Tensor:
        """W x -> N(W x) + b."""
        return self.input_norm(products) + self.weight[:, -1].to(products.dtype)

    def hidden_gates(self, products: Tensor) -> Tensor:
        """U h -> N(U h)."""
        return self.hidden_norm(products)

    def input_function(self) -> Callable[[Tensor], Tensor]:
        multiply, zeros = shared_weight(self.weight[:, : self.inputs]), self.weight.new_zeros(self.gates * self.dim)
        return lambda x: self.input_gates(multiply(x, zeros))

    def step_function(self) -> CellStep:
        multiply_fed, multiply_hidden = shared_weight(self.weight[:, self.inputs : -1]), shared_weight(self.recurrent)
        zeros = self.recurrent.new_zeros(self.gates * self.dim)

        def step(gates: Tensor, fed: Tensor | None, state: Hidden) -> Hidden:
            from_input = gates if fed is None else self.input_gates(multiply_fed(fed, gates))
            return self.update(from_input, self.hidden_gates(multiply_hidden(state[0], zeros)), state)

        return step

    def update(self, from_input: Tensor, from_hidden: Tensor, state: Hidden) -> Hidden:
        """N(W x) + b and N(U h) (rows, gates x dim), and the state -> the new state."""
        raise NotImplementedError


class NormalizedLstm(NormalizedLayer):
    kernel_class, gates, states, groups = nn.LSTM, 4, 2, (4,)

    def __init__(self, inputs: int, dim: int, fed: int = 0) -> None:
        super().__init__(inputs, dim, fed)
        self.cell_norm = GateNorm((dim,))
        nn.init.ones_(self.weight.data[dim : 2 * dim, -1])  # open forget gates, as without normalization

    def update(self, from_input: Tensor, from_hidden: Tensor, state: Hidden) -> Hidden:
        i, f, g, o = (from_input + from_hidden).chunk(4, dim=-1)
        cell = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
        return o.sigmoid() * self.cell_norm(cell).tanh(), cell


class NormalizedGru(NormalizedLayer):
    kernel_class, gates, states, groups = nn.GRU, 3, 1, (2, 1)

    def update(self, from_input: Tensor, from_hidden: Tensor, state: Hidden) -> Hidden:
        return (gru_cell(from_input, from_hidden, state[0]),)


CELLS: dict[str, dict[str, type[Layer]]] = {  # norm -> cell -> layer
    "none": {"lstm": Lstm, "gru": Gru},
    "layer": {"lstm": NormalizedLstm, "gru": NormalizedGru},
}
