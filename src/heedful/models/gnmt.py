"""GNMT: deep stacks of LSTM layers whose inputs are added to their outputs ("Google's Neural Machine Translation System",
Wu et al., 2016).

    encoder   layer 1 reads both ways, the others one way; from layer 3 on  x <- lstm(x) + x
    decoder   layer 1 looks at the source with its last state and takes what it found, c:   [y; c]
              every layer above takes it too:  x <- lstm([x; c]), from layer 3 on  x <- lstm([x; c]) + x

Only layer 1 of the decoder walks token by token; all others run over the whole target at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from heedful.models.recurrent import Recurrent, RecurrentConfig
from heedful.nn.dropout import Dropout
from heedful.nn.layers import Layers
from heedful.nn.looking import LooksBefore
from heedful.nn.recurrent import BothWays, Lstm, Read
from heedful.nn.rows import Tree
from heedful.nn.scores import Additive, SourceAttention
from heedful.nn.taps import Tap
from heedful.schema import Probability


class GNMTConfig(RecurrentConfig):
    """Sizes default to the paper's."""

    family: Literal["gnmt"] = "gnmt"
    dim: PositiveInt = 1024
    layers: PositiveInt = 8
    decoder_layers: PositiveInt | None = None  # as many as `layers` unless said
    residual: bool = True  # from the third layer on
    dropout: Probability = 0.2

    @property
    def read_dim(self) -> int:
        """Of what the encoder says of a token."""
        return self.dim if self.layers > 1 else 2 * self.dim


class DeepEncoder(nn.Module):
    def __init__(self, config: GNMTConfig) -> None:
        super().__init__()
        dim, self.residual = config.dim, config.residual
        self.bottom = BothWays(Lstm(config.word_dim, dim), Lstm(config.word_dim, dim))
        self.above = Layers(Lstm(dim if at else 2 * dim, dim) for at in range(config.layers - 1))
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor | None) -> Read:
        """x (sources, time, word_dim), mask (sources, time): padding stands at the end."""
        x = self.bottom(x, mask).words  # (sources, time, 2 dim)
        for at, layer in enumerate(self.above):
            said, _ = layer(self.dropout(x), None, mask)
            x = said + x if at and self.residual else said
        return Read(x, [])

    if TYPE_CHECKING:
        __call__ = forward


class DeepDecoder(nn.Module):
    """It begins with zeros: all it knows of the source it finds by looking."""

    def __init__(self, config: GNMTConfig) -> None:
        super().__init__()
        dim, read_dim, self.residual = config.dim, config.read_dim, config.residual
        attention = SourceAttention(Additive(dim, read_dim))
        self.bottom = LooksBefore(Lstm(config.word_dim, dim, fed=read_dim), attention)
        self.above = Layers(Lstm(dim + read_dim, dim) for _ in range((config.decoder_layers or config.layers) - 1))
        self.dropout = Dropout(config.dropout)
        self.out = Tap()

    def begin(self, read: Read, mask: Tensor | None) -> tuple[Tree, Tree]:
        layers = [self.bottom.layer, *self.above]
        return self.bottom.cross.remember(read.words, mask), [layer.beginning(len(read.words), read.words) for layer in layers]

    def forward(self, x: Tensor, memory: Tree, past: Tree, real: Tensor | None) -> tuple[Tensor, Tree]:
        x, found, state = self.bottom(x, memory, past[0], real)
        states = [state]
        for at, (layer, state) in enumerate(zip(self.above, past[1:], strict=True)):
            said, state = layer(torch.cat((self.dropout(x), found), dim=-1), state, real)
            x = said + x if at and self.residual else said
            states.append(state)
        return self.out(x), states

    if TYPE_CHECKING:
        __call__ = forward


class GNMT(Recurrent):
    def __init__(self, config: GNMTConfig, source_vocab: int, target_vocab: int) -> None:
        super().__init__(config, source_vocab, target_vocab)
        self.encoder = DeepEncoder(config)
        self.decoder = DeepDecoder(config)
