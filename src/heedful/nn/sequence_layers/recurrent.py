"""Recurrence as a sequence layer: a state that walks along the tokens, whose past is that state."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from heedful.nn import recurrent
from heedful.nn.decoder_state import Tree
from heedful.nn.pack_left import gather_time, pack_left_order
from heedful.nn.sequence_layers.base import LayerSize, LayerState, SequenceLayer, StepContext


class Recurrent(SequenceLayer):
    """A state that walks along the sequence; when not causal, two states of half the size that walk towards each other.

    Each walks over the real tokens alone: they are brought together first, and put back in their places afterwards."""

    cost, steps, path = "n d^2", "n", "n"
    remark = "both directions, d / 2 each (one of d where it is causal); the bias is one more input, hence the terms in n d"
    cell: ClassVar[type[recurrent.Lstm] | type[recurrent.Gru]]

    def __init__(self, size: LayerSize) -> None:
        super().__init__(size)
        hidden = size.dim if size.causal else size.dim // 2
        self.forwards = self.cell(size.dim, hidden)
        self.backwards = None if size.causal else self.cell(size.dim, hidden)

    def mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        ahead = walk(self.forwards, x, mask)
        if self.backwards is None:
            return ahead
        back = walk(self.backwards, x.flip(1), None if mask is None else mask.flip(1)).flip(1)
        return torch.cat((ahead, back), dim=-1)  # (rows, time, dim)

    def beginning(self, rows: int, like: Tensor) -> Tree:
        return self.forwards.beginning(rows, like)

    def extend(self, x: Tensor, kept: LayerState, now: StepContext) -> tuple[Tensor, Tree]:
        return self.forwards(x, kept.row_state, now.real)

    @staticmethod
    def operations(size: LayerSize, time: int) -> int:
        return time * size.dim**2

    @classmethod
    def products(cls, *, causal: bool) -> str:
        """Of d + 1 inputs and d states, or of half as many of these for each of two."""
        gates = cls.cell.gates
        return f"{(4 if causal else 3) * gates} n d^2 + {2 * gates} n d"


def walk(layer: recurrent.Layer, x: Tensor, mask: Tensor | None) -> Tensor:
    """(rows, time, dim), (rows, time) -> the states (rows, time, hidden)."""
    if mask is None:
        return layer(x, None)[0]
    lineup = pack_left_order(mask)
    states, _ = layer(gather_time(x, lineup.order), None)
    return gather_time(states, lineup.back)


class Lstm(Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997)."""

    cell = recurrent.Lstm


class Gru(Recurrent):
    """Gated recurrent units (Cho et al., 2014)."""

    cell = recurrent.Gru
