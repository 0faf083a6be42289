"""GNMT: deep stacks of LSTM layers whose inputs are added to their outputs ("Google's Neural Machine Translation System",
Wu et al., 2016).

    encoder   layer 1 reads both ways, the others one way; from layer 3 on  x <- lstm(x) + x
    decoder   layer 1 looks at the source with its last state and takes what it found, c:   [y; c]
              every layer above takes it too:  x <- lstm([x; c]), from layer 3 on  x <- lstm([x; c]) + x

Only layer 1 of the decoder walks token by token; all others run over the whole target at once. Between the layers there may
be mixtures of experts, x <- x + experts(x), wherever `dim` numbers go from one to the next (Shazeer et al., 2017).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from heedful.models.recurrent import DecoderOutput, Recurrent, RecurrentConfig
from heedful.nn.decoder_state import Tree
from heedful.nn.dropout import Dropout
from heedful.nn.experts import ExpertLayer, Experts, balance, misfits
from heedful.nn.hooks import HookPoint
from heedful.nn.layers import Layers
from heedful.nn.recurrent import Bidirectional, EncoderOutput, Lstm
from heedful.nn.recurrent_attention import AttentionBeforeStep
from heedful.nn.scores import Additive, SourceAttention
from heedful.schema import NonNegativeNumber, Probability, Problem, Size, SmallCount, ZeroOrSmallCount, unused


class GNMTConfig(RecurrentConfig):
    """Sizes default to the paper's."""

    family: Literal["gnmt"] = "gnmt"
    """Model family."""
    dim: Size = 1024
    """Size of the hidden state."""
    layers: SmallCount = 8
    """Encoder layers."""
    decoder_layers: SmallCount | None = None
    """Decoder layers; default: as many as `layers`."""
    residual: bool = True
    """Residual connections from the third layer on."""
    experts: ZeroOrSmallCount = 0
    """Experts of a mixture between every two layers; 0: no mixture."""
    experts_used: SmallCount = 2
    """Experts used for each token."""
    experts_size: Size | None = None
    """Hidden size of an expert; default: 4 x dim."""
    experts_balance: NonNegativeNumber = 0.01
    """Weight of the load-balancing losses."""
    dropout: Probability = 0.2
    """Dropout of embeddings, between layers, and before the output."""

    @property
    def read_dim(self) -> int:
        """Of what the encoder says of a token."""
        return self.dim if self.layers > 1 else 2 * self.dim

    @property
    def places(self) -> tuple[int, int]:
        """How often `dim` numbers go from one layer to the next: in the encoder, whose first layer says more, and after it."""
        return max(self.layers - 2, 0), (self.decoder_layers or self.layers) - 1

    def problems(self) -> list[Problem]:
        found = super().problems()
        if not self.experts:
            return [*found, *unused(self, dict.fromkeys(EXPERT_OPTIONS, "model.experts is 0"))]
        sizes = {"dim": self.dim} | ({} if self.experts_size is None else {"experts_size": self.experts_size})
        found += misfits(sizes, self.experts, self.experts_used)
        if self.places == (0, 0):
            found.append(Problem("experts", f"given {self.experts}, but they stand between layers; expected more model.layers"))
        return found


EXPERT_OPTIONS = ("experts_used", "experts_size", "experts_balance")


def between(config: GNMTConfig, places: int) -> ExpertLayer:
    sizes = config.dim, config.experts_size or 4 * config.dim, config.experts, config.experts_used
    return ExpertLayer(Experts(*sizes) for _ in range(places if config.experts else 0))


class DeepEncoder(nn.Module):
    def __init__(self, config: GNMTConfig) -> None:
        super().__init__()
        dim, self.residual = config.dim, config.residual
        self.bottom = Bidirectional(Lstm(config.word_dim, dim), Lstm(config.word_dim, dim))
        self.above = Layers(Lstm(dim if at else 2 * dim, dim) for at in range(config.layers - 1))
        self.between = between(config, config.places[0])
        self.dropout = Dropout(config.dropout)
        self.out = HookPoint()

    def forward(self, x: Tensor, mask: Tensor | None) -> EncoderOutput:
        """x (sources, time, word_dim), mask (sources, time): padding stands at the end."""
        x, ledger = self.bottom(x, mask).words, self.between.ledger(mask)  # (sources, time, 2 dim)
        for at, layer in enumerate(self.above):
            said, _ = layer(self.dropout(x), None, mask)
            x = self.between(at, said + x if at and self.residual else said, ledger)
        return EncoderOutput(self.out(x), [], None if ledger is None else torch.stack(ledger.wants).sum(0))

    if TYPE_CHECKING:
        __call__ = forward


class DeepDecoder(nn.Module):
    """It begins with zeros: all it knows of the source it finds by looking."""

    def __init__(self, config: GNMTConfig) -> None:
        super().__init__()
        dim, read_dim, self.residual = config.dim, config.read_dim, config.residual
        attention = SourceAttention(Additive(dim, read_dim))
        self.bottom = AttentionBeforeStep(Lstm(config.word_dim, dim, fed=read_dim), attention)
        self.above = Layers(Lstm(dim + read_dim, dim) for _ in range(config.places[1]))
        self.between, self.balance = between(config, config.places[1]), config.experts_balance
        self.dropout = Dropout(config.dropout)
        self.out = HookPoint()

    def begin(self, read: EncoderOutput, mask: Tensor | None) -> tuple[Tree, Tree]:
        wants = None if read.wants is None else read.wants.expand(read.words.shape[0], -1)  # (sources, 2)
        memory = {"source": self.bottom.cross_attention.remember(read.words, mask), "wants": wants}
        return memory, [layer.beginning(read.words.shape[0], read.words) for layer in (self.bottom.layer, *self.above)]

    def forward(self, x: Tensor, memory: Tree, row_state: Tree, real: Tensor | None) -> DecoderOutput:
        x, found, state = self.bottom(x, memory["source"], row_state[0], real)
        states, ledger = [state], self.between.ledger(real)
        for at, (layer, state) in enumerate(zip(self.above, row_state[1:], strict=True)):
            x = self.between(at, x, ledger)
            said, state = layer(torch.cat((self.dropout(x), found), dim=-1), state, real)
            x = said + x if at and self.residual else said
            states.append(state)
        wants = [] if ledger is None else ledger.wants
        if memory["wants"] is not None:
            wants.append(memory["wants"].mean(0))
        return DecoderOutput(self.out(x), states, balance(torch.stack(wants).sum(0), self.balance) if wants else {})

    if TYPE_CHECKING:
        __call__ = forward


class GNMT(Recurrent):
    def __init__(self, config: GNMTConfig, source_vocab: int, target_vocab: int) -> None:
        super().__init__(config, source_vocab, target_vocab)
        self.encoder = DeepEncoder(config)
        self.decoder = DeepDecoder(config)
