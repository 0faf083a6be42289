"""Recurrence as a sequence layer; its state is the recurrent state."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from heedful.nn.decoder_state import Tree
from heedful.nn.normalized_recurrent import CELLS
from heedful.nn.pack_left import gather_time, pack_left_order
from heedful.nn.recurrent import Layer
from heedful.nn.sequence_layers.base import LayerSize, LayerState, SequenceLayer
from heedful.nn.step_context import StepContext


class Recurrent(SequenceLayer):
    """A recurrent layer; when not causal, two of half the size in opposite directions.

    Padding is removed first: real tokens are packed to the left, and moved back afterwards."""

    cost, steps, path = "n d^2", "n", "n"
    remark = "both directions, d / 2 each (one of d if causal); the bias is an additional input, hence the terms in n d"
    options = ("recurrent_norm",)
    cell: ClassVar[str]

    def __init__(self, size: LayerSize) -> None:
        super().__init__(size)
        hidden = size.dim if size.causal else size.dim // 2
        layer = CELLS[size.recurrent_norm][self.cell]
        self.forwards = layer(size.dim, hidden)
        self.backwards = None if size.causal else layer(size.dim, hidden)

    def mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        ahead = run_packed(self.forwards, x, mask)
        if self.backwards is None:
            return ahead
        back = run_packed(self.backwards, x.flip(1), None if mask is None else mask.flip(1)).flip(1)
        return torch.cat((ahead, back), dim=-1)  # (rows, time, dim)

    def initial_state(self, rows: int, like: Tensor) -> Tree:
        return self.forwards.initial_state(rows, like)

    def mix_step(self, x: Tensor, state: LayerState, step: StepContext) -> tuple[Tensor, Tree]:
        return self.forwards(x, state.row_state, step.real)

    @staticmethod
    def operations(size: LayerSize, time: int) -> int:
        return time * size.dim**2

    @classmethod
    def products(cls, *, causal: bool) -> str:
        """With d + 1 inputs and d states, or d / 2 states in each direction."""
        gates = CELLS["none"][cls.cell].gates
        return f"{(4 if causal else 3) * gates} n d^2 + {2 * gates} n d"


def run_packed(layer: Layer, x: Tensor, mask: Tensor | None) -> Tensor:
    """(rows, time, dim), (rows, time) -> the states (rows, time, hidden)."""
    if mask is None:
        return layer(x, None)[0]
    packed = pack_left_order(mask)
    states, _ = layer(gather_time(x, packed.order), None)
    return gather_time(states, packed.back)


class Lstm(Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997)."""

    cell = "lstm"


class Gru(Recurrent):
    """Gated recurrent units (Cho et al., 2014)."""

    cell = "gru"
