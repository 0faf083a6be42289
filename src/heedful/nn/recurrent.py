"""Recurrent layers: a state that walks along the tokens.

    lstm    i, f, g, o = W x + b + U h        c <- sigmoid(f) c + sigmoid(i) tanh(g)     h <- sigmoid(o) tanh(c)
            (Hochreiter and Schmidhuber, 1997)
    gru     r, z = sigmoid(W x + b + U h)     n = tanh(W' x + b' + r U' h)               h <- (1 - z) n + z h
            (Cho et al., 2014)

The bias b is the weight of one more input, which is 1 for real tokens and 0 for padding. So on padding nothing comes in, and
from nothing comes nothing: with x = 0, b = 0 and a state of zeros the state stays zeros, to the bit. Padding that comes
before the first token leaves no trace, whatever fused kernel runs, and the state after the last token is that of the last
place. Padding at the end comes first when one reads backwards.

A layer reads a whole sequence by a fused kernel, and walks one token at a time where something must happen in between; then
what is known beforehand, W x + b, is computed for all tokens at once, and what is `fed` is what becomes known on the way. On a
GPU all that follows the products of a token is then one kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from heedful.nn.dropout import Dropout
from heedful.nn.hooks import HookPoint
from heedful.nn.pack_left import gather_time
from heedful.nn.shared_weight_grad import shared_weight

Hidden = tuple[Tensor, ...]  # the state of a layer, each (rows, dim): what it says, and an LSTM's cell
Walk = Callable[[Tensor, Tensor | None, Hidden], Hidden]  # W x + b of one token (rows, gates x dim), what is fed, the state


class Layer(nn.Module):
    """What LSTM and GRU have in common."""

    kernel_class: ClassVar[type[nn.LSTM] | type[nn.GRU]]
    gates: ClassVar[int]
    states: ClassVar[int]

    def __init__(self, inputs: int, dim: int, fed: int = 0) -> None:
        super().__init__()
        self.inputs, self.dim = inputs, dim
        self.kernel = self.kernel_class(inputs + fed + 1, dim, bias=False, batch_first=True)
        for given, kept in zip(self.weight.data.chunk(self.gates), self.recurrent.data.chunk(self.gates), strict=True):
            nn.init.xavier_uniform_(given[:, :-1])
            nn.init.zeros_(given[:, -1:])
            nn.init.orthogonal_(kept)

    @property
    def weight(self) -> nn.Parameter:
        """(gates x dim, inputs + fed + 1): the last column is the bias."""
        return self.kernel.get_parameter("weight_ih_l0")

    @property
    def recurrent(self) -> nn.Parameter:
        """(gates x dim, dim)."""
        return self.kernel.get_parameter("weight_hh_l0")

    def beginning(self, rows: int, like: Tensor) -> Hidden:
        return tuple(like.new_zeros(rows, self.dim) for _ in range(self.states))

    def forward(self, x: Tensor, state: Hidden | None, real: Tensor | None = None) -> tuple[Tensor, Hidden]:
        """x (rows, time, inputs), real (rows, time) -> (rows, time, dim), and the state after the last place.

        A token that is not real changes nothing, wherever it stands; but where a sequence is read from nothing on (no
        state), padding that follows it goes on to change the state, which then means nothing."""
        if real is None or state is None:
            return self.run(x, state, real)
        walk, said = self.walk(), []
        for gates, is_real in zip(self.foresee(x), real.unbind(1), strict=True):
            state = keep_padded(walk(gates, None, state), state, is_real)
            said.append(state[0])
        return torch.stack(said, dim=1), state

    def run(self, x: Tensor, state: Hidden | None, real: Tensor | None) -> tuple[Tensor, Hidden]:
        given = functional.pad(x, (0, 1), value=1.0)  # (rows, time, inputs + 1)
        if real is not None:
            given = given * real[..., None]
        if torch.compiler.is_exporting():
            return self.scan(given, state)
        if given.device.type == "cuda" and torch.is_grad_enabled() and not self.training:
            return self.step_by_step(given, state)  # cuDNN has no backward pass outside of training
        if given.device.type == "cpu" and torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") is torch.float16:
            with torch.autocast("cpu", enabled=False):  # oneDNN has no LSTM in float16
                return self.call(given.float(), None if state is None else tuple(each.float() for each in state))
        return self.call(given, state)

    def call(self, given: Tensor, state: Hidden | None) -> tuple[Tensor, Hidden]:
        raise NotImplementedError

    def step_by_step(self, given: Tensor, state: Hidden | None) -> tuple[Tensor, Hidden]:
        """As `call`, one token at a time."""
        walk, gates = self.walk(), functional.linear(given, self.weight)  # (rows, time, gates x dim)
        state, said = self.beginning(given.shape[0], gates) if state is None else state, []
        for one in gates.unbind(1):
            state = walk(one, None, state)
            said.append(state[0])
        return torch.stack(said, dim=1), state

    def scan(self, given: Tensor, state: Hidden | None) -> tuple[Tensor, Hidden]:
        """As `call`, by an operation that stands for any number of steps: a kernel would be followed step by step."""
        from torch._higher_order_ops.scan import scan

        walk, gates = self.walk(), functional.linear(given, self.weight)  # (rows, time, gates x dim)

        def step(state: Hidden, gates: Tensor) -> tuple[Hidden, Tensor]:
            new = walk(gates, None, state)
            return new, new[0].clone()

        first = self.beginning(given.shape[0], gates) if state is None else state
        last, said = scan(step, first, gates.transpose(0, 1))
        return said.transpose(0, 1), last

    def foresee(self, x: Tensor) -> tuple[Tensor, ...]:
        """W x + b for all tokens of x (rows, time, inputs): for each (rows, gates x dim)."""
        return functional.linear(x, self.weight[:, : self.inputs], self.weight[:, -1]).unbind(1)

    def walk(self) -> Walk:
        """One token after another; what all steps share is made here, once."""
        raise NotImplementedError

    if TYPE_CHECKING:
        __call__ = forward


def keep_padded(new: Hidden, old: Hidden, real: Tensor) -> Hidden:
    """The new state where the token (rows,) was real, else the old one."""
    return tuple(torch.where(real[:, None], after, before) for after, before in zip(new, old, strict=True))


def has_fused_cells(x: Tensor) -> bool:
    return x.device.type == "cuda" and not torch.compiler.is_compiling()


def fused_lstm(given: Tensor, kept: Tensor, cell: Tensor) -> Hidden:
    """W x + b and U h, each (rows, gates x dim), and the cell (rows, dim) -> the next state."""
    hidden, cell, _ = torch.ops.aten._thnn_fused_lstm_cell(given, kept, cell.to(given.dtype))
    return hidden, cell


def fused_gru(given: Tensor, kept: Tensor, hidden: Tensor) -> Tensor:
    """As for an LSTM; without a cell."""
    after, _ = torch.ops.aten._thnn_fused_gru_cell(given, kept, hidden.to(given.dtype))
    found: Tensor = after
    return found


class Lstm(Layer):
    kernel_class, gates, states = nn.LSTM, 4, 2

    def __init__(self, inputs: int, dim: int, fed: int = 0) -> None:
        super().__init__(inputs, dim, fed)
        nn.init.ones_(self.weight.data[dim : 2 * dim, -1])  # remember, at first (Jozefowicz et al., 2015)

    def call(self, given: Tensor, state: Hidden | None) -> tuple[Tensor, Hidden]:
        said, (hidden, cell) = self.kernel(given, None if state is None else (state[0][None], state[1][None]))
        return said, (hidden[0], cell[0])

    def walk(self) -> Walk:
        multiply = shared_weight(
            torch.cat((self.weight[:, self.inputs : -1], self.recurrent), dim=1)
        )  # (gates x dim, fed + dim)
        nothing = self.recurrent.new_zeros(self.gates * self.dim)

        def step(gates: Tensor, fed: Tensor | None, state: Hidden) -> Hidden:
            hidden, cell = state
            known = hidden if fed is None else torch.cat((fed, hidden), dim=-1)
            if has_fused_cells(gates):
                return fused_lstm(gates, multiply(known, nothing), cell)
            i, f, g, o = multiply(known, gates).chunk(4, dim=-1)
            cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            return o.sigmoid() * cell.tanh(), cell

        return step


class Gru(Layer):
    kernel_class, gates, states = nn.GRU, 3, 1

    def call(self, given: Tensor, state: Hidden | None) -> tuple[Tensor, Hidden]:
        said, hidden = self.kernel(given, None if state is None else state[0][None])
        return said, (hidden[0],)

    def walk(self) -> Walk:
        feed, keep, two = shared_weight(self.weight[:, self.inputs : -1]), shared_weight(self.recurrent), 2 * self.dim
        nothing = self.recurrent.new_zeros(self.gates * self.dim)

        def step(gates: Tensor, fed: Tensor | None, state: Hidden) -> Hidden:
            (hidden,) = state
            given = gates if fed is None else feed(fed, gates)
            kept = keep(hidden, nothing)
            if has_fused_cells(gates):
                return (fused_gru(given, kept, hidden),)
            r, z = (given[:, :two] + kept[:, :two]).sigmoid().chunk(2, dim=-1)
            n = torch.addcmul(given[:, two:], r, kept[:, two:]).tanh()
            return (torch.lerp(n, hidden.to(n.dtype), z),)

        return step


CELLS: dict[str, type[Lstm] | type[Gru]] = {"lstm": Lstm, "gru": Gru}


class RecurrentStack(nn.Module):
    """Layers above each other, all of one size, with dropout between them."""

    def __init__(self, layers: list[Layer], dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.dropout = Dropout(dropout)

    def __iter__(self) -> Iterator[Layer]:
        for layer in self.layers:
            assert isinstance(layer, Layer)
            yield layer

    def forward(self, x: Tensor, states: list[Hidden] | None, real: Tensor | None) -> tuple[Tensor, list[Hidden]]:
        """As a layer's, with the states of every layer."""
        last: list[Hidden] = []
        for at, layer in enumerate(self):
            x, state = layer(self.dropout(x) if at else x, None if states is None else states[at], real)
            last.append(state)
        return x, last

    def foresee(self, x: Tensor) -> tuple[Tensor, ...]:
        """As a layer's, of the lowest."""
        return next(iter(self)).foresee(x)

    def walk(self) -> Callable[[Tensor, Tensor | None, list[Hidden]], list[Hidden]]:
        """As a layer's: what is fed goes to the lowest."""
        bottom, *others = self
        first = bottom.walk()
        above = [(shared_weight(layer.weight[:, : layer.inputs]), layer.weight[:, -1], layer.walk()) for layer in others]

        def step(gates: Tensor, fed: Tensor | None, states: list[Hidden]) -> list[Hidden]:
            new = [first(gates, fed, states[0])]
            for (multiply, bias, walk), state in zip(above, states[1:], strict=True):
                new.append(walk(multiply(self.dropout(new[-1][0]), bias), None, state))
            return new

        return step

    if TYPE_CHECKING:
        __call__ = forward


class EncoderOutput(NamedTuple):
    """What an encoder made of a source."""

    words: Tensor  # (sources, time, dim): what it says of every token
    last: list[Hidden]  # the last state of every layer; empty where the decoder does not begin with them
    wants: Tensor | None = None  # (2,): what its experts want, see nn/experts.py


class Unidirectional(nn.Module):
    """Layers that read from one end to the other, and end with the last token whatever the padding."""

    def __init__(self, stack: RecurrentStack, reverse: bool) -> None:
        super().__init__()
        self.stack, self.reverse = stack, reverse
        self.out = HookPoint()  # (sources, time, dim)

    def forward(self, x: Tensor, mask: Tensor | None) -> EncoderOutput:
        """x (sources, time, inputs), mask (sources, time): padding stands at the end, and is moved to the beginning."""
        if self.reverse:
            words, last = self.stack(x.flip(1), None, None if mask is None else mask.flip(1))
            return EncoderOutput(self.out(words.flip(1)), last)
        if mask is None:
            words, last = self.stack(x, None, None)
            return EncoderOutput(self.out(words), last)
        places, padding = torch.arange(x.shape[1], device=x.device), (~mask).sum(1, keepdim=True)
        moved = torch.where(places < padding, places - padding + x.shape[1], places - padding)  # (sources, time)
        back = torch.where(places + padding < x.shape[1], places + padding, places + padding - x.shape[1])
        words, last = self.stack(gather_time(x, moved), None, places >= padding)
        return EncoderOutput(self.out(gather_time(words, back)), last)

    if TYPE_CHECKING:
        __call__ = forward


class Bidirectional(nn.Module):
    """Two layers that read towards each other: every token is described by what stands before it and what stands after."""

    def __init__(self, ahead: Layer, back: Layer) -> None:
        super().__init__()
        self.ahead, self.back = ahead, back
        self.out = HookPoint()

    def forward(self, x: Tensor, mask: Tensor | None) -> EncoderOutput:
        """x (sources, time, inputs), mask (sources, time): padding stands at the end."""
        ahead, _ = self.ahead(x, None, mask)
        back, _ = self.back(x.flip(1), None, None if mask is None else mask.flip(1))
        return EncoderOutput(self.out(torch.cat((ahead, back.flip(1)), dim=-1)), [])  # (sources, time, 2 dim)

    if TYPE_CHECKING:
        __call__ = forward
