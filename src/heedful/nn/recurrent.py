"""Recurrent layers.

    lstm    i, f, g, o = W x + b + U h        c <- sigmoid(f) c + sigmoid(i) tanh(g)     h <- sigmoid(o) tanh(c)
            (Hochreiter and Schmidhuber, 1997)
    gru     r, z = sigmoid(W x + b + U h)     n = tanh(W' x + b' + r U' h)               h <- (1 - z) n + z h
            (Cho et al., 2014)

The bias b is the weight of an additional input, which is 1 for real tokens and 0 for padding. With x = 0, b = 0 and a state
of zeros the state stays exactly zero, so padding before the first token has no effect, whatever fused kernel runs, and the
state after the last token is that of the last position. Padding at the end comes first in a backward direction.

A fused kernel runs a whole sequence. Where each step depends on the previous one's attention, steps run one at a time:
W x + b is computed for all tokens at once (`project_inputs`), and `fed` inputs are those that only become available during
decoding. On a GPU everything after the matrix products of a step is one kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from heedful.nn.dropout import Dropout
from heedful.nn.hooks import HookPoint
from heedful.nn.pack_left import gather_time
from heedful.nn.shared_weight_grad import shared_weight
from heedful.nn.torch_private import fused_gru_cell, fused_lstm_cell, scan

Hidden = tuple[Tensor, ...]  # the state of a layer, each (rows, dim): the hidden state, and the cell of an LSTM
CellStep = Callable[
    [Tensor, Tensor | None, Hidden], Hidden
]  # W x + b of one token (rows, gates x dim), fed input, state -> state


class Layer(nn.Module):
    """Base of LSTM and GRU layers."""

    kernel_class: ClassVar[type[nn.LSTM] | type[nn.GRU]]
    gates: ClassVar[int]
    states: ClassVar[int]

    def __init__(self, inputs: int, dim: int, fed: int = 0) -> None:
        super().__init__()
        self.inputs, self.dim = inputs, dim
        self.kernel = self.kernel_class(inputs + fed + 1, dim, bias=False, batch_first=True)
        for weight, recurrent in zip(self.weight.data.chunk(self.gates), self.recurrent.data.chunk(self.gates), strict=True):
            nn.init.xavier_uniform_(weight[:, :-1])
            nn.init.zeros_(weight[:, -1:])
            nn.init.orthogonal_(recurrent)

    @property
    def weight(self) -> nn.Parameter:
        """(gates x dim, inputs + fed + 1): the last column is the bias."""
        return self.kernel.get_parameter("weight_ih_l0")

    @property
    def recurrent(self) -> nn.Parameter:
        """(gates x dim, dim)."""
        return self.kernel.get_parameter("weight_hh_l0")

    def initial_state(self, rows: int, like: Tensor) -> Hidden:
        return tuple(like.new_zeros(rows, self.dim) for _ in range(self.states))

    def forward(self, x: Tensor, state: Hidden | None, real: Tensor | None = None) -> tuple[Tensor, Hidden]:
        """x (rows, time, inputs), real (rows, time): padding mask -> (rows, time, dim), and the state after the last position.

        Padding does not change the state. Without an initial state this holds only for padding before the first token: the
        state after trailing padding is then undefined."""
        if real is None or state is None:
            return self.run(x, state, real)
        return self.run_steps(self.project_inputs(x), state, real)

    def run(self, x: Tensor, state: Hidden | None, real: Tensor | None) -> tuple[Tensor, Hidden]:
        """Run the sequence by the kernel that suits device and precision; shapes as in `forward`."""
        inputs = add_bias_input(x, real)
        if torch.compiler.is_exporting():
            return self.scan(inputs, state)
        if inputs.device.type == "cuda" and torch.is_grad_enabled() and not self.training:
            return self.step_by_step(inputs, state)  # cuDNN has no backward pass in eval mode
        if (
            inputs.device.type == "cpu"
            and torch.is_autocast_enabled("cpu")
            and torch.get_autocast_dtype("cpu") is torch.float16
        ):
            with torch.autocast("cpu", enabled=False):  # oneDNN has no LSTM in float16
                return self.call(inputs.float(), None if state is None else tuple(each.float() for each in state))
        return self.call(inputs, state)

    def call(self, inputs: Tensor, state: Hidden | None) -> tuple[Tensor, Hidden]:
        """Run torch's fused kernel: inputs (rows, time, inputs + 1) -> (rows, time, dim), and the last state."""
        raise NotImplementedError

    def step_by_step(self, inputs: Tensor, state: Hidden | None) -> tuple[Tensor, Hidden]:
        """As `call`, one token at a time."""
        gates = functional.linear(inputs, self.weight)  # (rows, time, gates x dim)
        return self.run_steps(gates.unbind(1), self.initial_state(inputs.shape[0], gates) if state is None else state, None)

    def run_steps(self, inputs: Sequence[Tensor], state: Hidden, real: Tensor | None) -> tuple[Tensor, Hidden]:
        """Run one token at a time; inputs: from `project_inputs`, real (rows, time): padding mask."""
        step, outputs = self.step_function(), []
        for at, gates in enumerate(inputs):
            new = step(gates, None, state)
            state = new if real is None else keep_padded(new, state, real[:, at])
            outputs.append(state[0])
        return torch.stack(outputs, dim=1), state

    def scan(self, inputs: Tensor, state: Hidden | None) -> tuple[Tensor, Hidden]:
        """As `call`, by one scan operator for any sequence length; for export, which would unroll the kernel's loop."""
        return self.scan_steps(functional.linear(inputs, self.weight), state)

    def scan_steps(self, gates: Tensor, state: Hidden | None) -> tuple[Tensor, Hidden]:
        """As `scan`; gates (rows, time, gates x dim): W x + b."""
        cell_step = self.step_function()

        def step(state: Hidden, gates: Tensor) -> tuple[Hidden, Tensor]:
            new = cell_step(gates, None, state)
            return new, new[0].clone()

        initial = self.initial_state(gates.shape[0], gates) if state is None else state
        last, outputs = scan(step, initial, gates.transpose(0, 1))
        return outputs.transpose(0, 1), last

    def project_inputs(self, x: Tensor) -> tuple[Tensor, ...]:
        """W x + b for all tokens of x (rows, time, inputs): a tuple over time of (rows, gates x dim)."""
        return self.multiply_inputs(x).unbind(1)

    def multiply_inputs(self, x: Tensor) -> Tensor:
        """W x + b, from the first columns of W if inputs are missing: (…, inputs) -> (…, gates x dim)."""
        return functional.linear(x, self.weight[:, : x.shape[-1]], self.weight[:, -1])

    def input_gates(self, products: Tensor) -> Tensor:
        """The share of the inputs in the gates: (…, gates x dim), sums of what `multiply_inputs` returns with weights of sum 1
        -> (…, gates x dim)."""
        return products

    def hidden_gates(self, products: Tensor) -> Tensor:
        """The share of the hidden state in the gates: U h (…, gates x dim) -> (…, gates x dim)."""
        return products

    def input_function(self) -> Callable[[Tensor], Tensor]:
        """Return the function x (rows, inputs) -> W x + b (rows, gates x dim) of one token."""
        multiply, bias = shared_weight(self.weight[:, : self.inputs]), self.weight[:, -1]
        return lambda x: multiply(x, bias)

    def step_function(self) -> CellStep:
        """Return the function of one step. Work that all steps share is done here."""
        raise NotImplementedError

    if TYPE_CHECKING:
        __call__ = forward


def add_bias_input(x: Tensor, real: Tensor | None) -> Tensor:
    """x (rows, time, inputs), real (rows, time) -> (rows, time, inputs + 1), zero at padding."""
    inputs = functional.pad(x, (0, 1), value=1.0)
    return inputs if real is None else inputs * real[..., None]


def keep_padded(new: Hidden, old: Hidden, real: Tensor) -> Hidden:
    """The new state where the token is real (rows,), else the old one."""
    return tuple(torch.where(real[:, None], after, before) for after, before in zip(new, old, strict=True))


def has_fused_cells(x: Tensor) -> bool:
    return x.device.type == "cuda" and not torch.compiler.is_compiling()


class Lstm(Layer):
    kernel_class, gates, states = nn.LSTM, 4, 2

    def __init__(self, inputs: int, dim: int, fed: int = 0) -> None:
        super().__init__(inputs, dim, fed)
        nn.init.ones_(self.weight.data[dim : 2 * dim, -1])  # open forget gates (Jozefowicz et al., 2015)

    def call(self, inputs: Tensor, state: Hidden | None) -> tuple[Tensor, Hidden]:
        outputs, (hidden, cell) = self.kernel(inputs, None if state is None else (state[0][None], state[1][None]))
        return outputs, (hidden[0], cell[0])

    def step_function(self) -> CellStep:
        weight = torch.cat((self.weight[:, self.inputs : -1], self.recurrent), dim=1)  # (gates x dim, fed + dim)
        multiply, no_bias = shared_weight(weight), self.recurrent.new_zeros(self.gates * self.dim)

        def step(gates: Tensor, fed: Tensor | None, state: Hidden) -> Hidden:
            hidden, cell = state
            inputs = hidden if fed is None else torch.cat((fed, hidden), dim=-1)
            if has_fused_cells(gates):
                return fused_lstm_cell(gates, multiply(inputs, no_bias), cell.to(gates.dtype))
            i, f, g, o = multiply(inputs, gates).chunk(4, dim=-1)
            cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            return o.sigmoid() * cell.tanh(), cell

        return step


class Gru(Layer):
    kernel_class, gates, states = nn.GRU, 3, 1

    def call(self, inputs: Tensor, state: Hidden | None) -> tuple[Tensor, Hidden]:
        outputs, hidden = self.kernel(inputs, None if state is None else state[0][None])
        return outputs, (hidden[0],)

    def step_function(self) -> CellStep:
        multiply_fed, multiply_hidden = shared_weight(self.weight[:, self.inputs : -1]), shared_weight(self.recurrent)
        no_bias = self.recurrent.new_zeros(self.gates * self.dim)

        def step(gates: Tensor, fed: Tensor | None, state: Hidden) -> Hidden:
            (hidden,) = state
            from_input = gates if fed is None else multiply_fed(fed, gates)
            return (gru_cell(from_input, multiply_hidden(hidden, no_bias), hidden),)

        return step


def gru_cell(from_input: Tensor, from_hidden: Tensor, hidden: Tensor) -> Tensor:
    """What follows the two matrix products: W x + b and U h (rows, 3 dim), and h (rows, dim) -> (rows, dim)."""
    if has_fused_cells(from_input):
        return fused_gru_cell(from_input, from_hidden, hidden.to(from_input.dtype))
    split = 2 * hidden.shape[-1]
    r, z = (from_input[:, :split] + from_hidden[:, :split]).sigmoid().chunk(2, dim=-1)
    n = torch.addcmul(from_input[:, split:], r, from_hidden[:, split:]).tanh()
    return torch.lerp(n, hidden.to(n.dtype), z)


class RecurrentStack(nn.Module):
    """A stack of layers of equal size, with dropout between them."""

    def __init__(self, layers: list[Layer], dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.dropout = Dropout(dropout)

    def __iter__(self) -> Iterator[Layer]:
        for layer in self.layers:
            assert isinstance(layer, Layer)
            yield layer

    def forward(self, x: Tensor, states: list[Hidden] | None, real: Tensor | None) -> tuple[Tensor, list[Hidden]]:
        """As a layer's, with a list of the states of all layers."""
        last: list[Hidden] = []
        for at, layer in enumerate(self):
            x, state = layer(self.dropout(x) if at else x, None if states is None else states[at], real)
            last.append(state)
        return x, last

    def project_inputs(self, x: Tensor) -> tuple[Tensor, ...]:
        """As a layer's, for the lowest layer."""
        return next(iter(self)).project_inputs(x)

    def step_function(self) -> Callable[[Tensor, Tensor | None, list[Hidden]], list[Hidden]]:
        """As a layer's; the fed input goes to the lowest layer."""
        bottom, *others = self
        first = bottom.step_function()
        above = [(layer.input_function(), layer.step_function()) for layer in others]

        def step(gates: Tensor, fed: Tensor | None, states: list[Hidden]) -> list[Hidden]:
            new = [first(gates, fed, states[0])]
            for (project, cell_step), state in zip(above, states[1:], strict=True):
                new.append(cell_step(project(self.dropout(new[-1][0])), None, state))
            return new

        return step

    if TYPE_CHECKING:
        __call__ = forward


class EncoderOutput(NamedTuple):
    """Output of an encoder."""

    hidden: Tensor  # (sources, time, dim)
    last_states: list[Hidden]  # of every layer; empty where the decoder is not initialized with them
    balance_losses: Tensor | None = None  # (2,): of its experts, see nn/experts.py


class Unidirectional(nn.Module):
    """A stack of layers in one direction, whose last state is that of the last real token."""

    def __init__(self, stack: RecurrentStack, reverse: bool) -> None:
        super().__init__()
        self.stack, self.reverse = stack, reverse
        self.out = HookPoint()  # (sources, time, dim)

    def forward(self, x: Tensor, mask: Tensor | None) -> EncoderOutput:
        """x (sources, time, inputs), mask (sources, time): padding is at the end, and is moved to the front."""
        if self.reverse:
            hidden, last_states = self.stack(x.flip(1), None, None if mask is None else mask.flip(1))
            return EncoderOutput(self.out(hidden.flip(1)), last_states)
        if mask is None:
            hidden, last_states = self.stack(x, None, None)
            return EncoderOutput(self.out(hidden), last_states)
        places, padding = torch.arange(x.shape[1], device=x.device), (~mask).sum(1, keepdim=True)
        moved = torch.where(places < padding, places - padding + x.shape[1], places - padding)  # (sources, time)
        back = torch.where(places + padding < x.shape[1], places + padding, places + padding - x.shape[1])
        hidden, last_states = self.stack(gather_time(x, moved), None, places >= padding)
        return EncoderOutput(self.out(gather_time(hidden, back)), last_states)

    def layer_outputs(self) -> list[HookPoint]:
        return [self.out]

    if TYPE_CHECKING:
        __call__ = forward


class Bidirectional(nn.Module):
    """Two layers in opposite directions, whose hidden states are concatenated."""

    def __init__(self, ahead: Layer, back: Layer) -> None:
        super().__init__()
        self.ahead, self.back = ahead, back
        self.out = HookPoint()

    def forward(self, x: Tensor, mask: Tensor | None) -> EncoderOutput:
        """x (sources, time, inputs), mask (sources, time): padding is at the end."""
        ahead, _ = self.ahead(x, None, mask)
        back, _ = self.back(x.flip(1), None, None if mask is None else mask.flip(1))
        return EncoderOutput(self.out(torch.cat((ahead, back.flip(1)), dim=-1)), [])  # (sources, time, 2 dim)

    def layer_outputs(self) -> list[HookPoint]:
        return [self.out]

    if TYPE_CHECKING:
        __call__ = forward
