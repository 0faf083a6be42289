"""GNMT: deep stacks of LSTM layers with residual connections ("Google's Neural Machine Translation System",
Wu et al., 2016).

    encoder   layer 1 is bidirectional, the others are not; from layer 3 on  x <- lstm(x) + x
    decoder   layer 1 attends to the source with its previous state; its input is [y; c] with the context vector c
              the layers above use the same c:  x <- lstm([x; c]), from layer 3 on  x <- lstm([x; c]) + x

Only layer 1 of the decoder runs token by token; all others run over the whole target at once. Mixtures of experts,
x <- x + experts(x), may stand between layers wherever the width is `dim` (Shazeer et al., 2017).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from heedful.config.base import NonNegativeNumber, Probability, Problem, Size, SmallCount, ZeroOrSmallCount, unused
from heedful.models.recurrent import DecoderOutput, Recurrent, RecurrentConfig
from heedful.nn.decoder_state import Tree
from heedful.nn.dropout import Dropout
from heedful.nn.experts import ExpertLayer, Experts, balance_losses, size_problems
from heedful.nn.hooks import HookPoint
from heedful.nn.layers import Layers
from heedful.nn.normalized_recurrent import CELLS
from heedful.nn.recurrent import Bidirectional, EncoderOutput
from heedful.nn.recurrent_attention import AttentionBeforeStep
from heedful.nn.scores import Additive, SourceAttention


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
    """Experts between every two layers; 0: no experts."""
    experts_used: SmallCount = 2
    """Experts used for each token."""
    experts_size: Size | None = None
    """Hidden size of an expert; default: 4 x dim."""
    experts_balance: NonNegativeNumber = 0.01
    """Weight of the load-balancing losses."""
    dropout: Probability = 0.2
    """Dropout of embeddings, between layers, and before the output."""

    @property
    def encoder_dim(self) -> int:
        """Size of encoder outputs."""
        return self.dim if self.layers > 1 else 2 * self.dim

    @property
    def places(self) -> tuple[int, int]:
        """Number of expert layers in the encoder, whose first layer has 2 dim outputs, and in the decoder."""
        return max(self.layers - 2, 0), (self.decoder_layers or self.layers) - 1

    def problems(self) -> list[Problem]:
        problems = super().problems()
        if not self.experts:
            return [*problems, *unused(self, dict.fromkeys(EXPERT_OPTIONS, "model.experts is 0"))]
        sizes = {"dim": self.dim} | ({} if self.experts_size is None else {"experts_size": self.experts_size})
        problems += size_problems(sizes, self.experts, self.experts_used)
        if self.places == (0, 0):
            expected = "expected 0, or more model.layers, since experts are placed between layers"
            problems.append(Problem("experts", f"given {self.experts}, {expected}"))
        return problems


EXPERT_OPTIONS = ("experts_used", "experts_size", "experts_balance")


def between(config: GNMTConfig, places: int) -> ExpertLayer:
    sizes = config.dim, config.experts_size or 4 * config.dim, config.experts, config.experts_used
    return ExpertLayer(Experts(*sizes) for _ in range(places if config.experts else 0))


class DeepEncoder(nn.Module):
    def __init__(self, config: GNMTConfig) -> None:
        super().__init__()
        dim, self.residual, lstm = config.dim, config.residual, CELLS[config.norm]["lstm"]
        self.bottom = Bidirectional(lstm(config.word_dim, dim), lstm(config.word_dim, dim))
        self.above = Layers(lstm(dim if at else 2 * dim, dim) for at in range(config.layers - 1))
        self.between = between(config, config.places[0])
        self.dropout = Dropout(config.dropout)
        self.out = HookPoint()

    def forward(self, x: Tensor, mask: Tensor | None) -> EncoderOutput:
        """x (sources, time, word_dim), mask (sources, time): padding is at the end."""
        x, record = self.bottom(x, mask).hidden, self.between.routing_record(mask)  # (sources, time, 2 dim)
        for at, layer in enumerate(self.above):
            hidden, _ = layer(self.dropout(x), None, mask)
            x = self.between(at, hidden + x if at and self.residual else hidden, record)
        return EncoderOutput(self.out(x), [], None if record is None else torch.stack(record.losses).sum(0))

    def layer_outputs(self) -> list[HookPoint]:
        return [*self.bottom.layer_outputs(), self.out]

    if TYPE_CHECKING:
        __call__ = forward


class DeepDecoder(nn.Module):
    """A decoder whose initial state is zero: it depends on the source through attention only."""

    def __init__(self, config: GNMTConfig) -> None:
        super().__init__()
        dim, encoder_dim, self.residual = config.dim, config.encoder_dim, config.residual
        attention, lstm = SourceAttention(Additive(dim, encoder_dim)), CELLS[config.norm]["lstm"]
        self.bottom = AttentionBeforeStep(lstm(config.word_dim, dim, fed=encoder_dim), attention)
        self.above = Layers(lstm(dim + encoder_dim, dim) for _ in range(config.places[1]))
        self.between, self.balance = between(config, config.places[1]), config.experts_balance
        self.dropout = Dropout(config.dropout)
        self.out = HookPoint()

    def begin(self, encoded: EncoderOutput, mask: Tensor | None) -> tuple[Tree, Tree]:
        hidden, losses = encoded.hidden, encoded.balance_losses
        memory = {
            "source": self.bottom.cross_attention.make_memory(hidden, mask),
            "balance_losses": None if losses is None else losses.expand(hidden.shape[0], -1),  # (sources, 2)
        }
        return memory, [layer.initial_state(hidden.shape[0], hidden) for layer in (self.bottom.layer, *self.above)]

    def forward(self, x: Tensor, memory: Tree, row_state: Tree, real: Tensor | None) -> DecoderOutput:
        x, context, state = self.bottom(x, memory["source"], row_state[0], real)
        states, record = [state], self.between.routing_record(real)
        for at, (layer, state) in enumerate(zip(self.above, row_state[1:], strict=True)):
            x = self.between(at, x, record)
            hidden, state = layer(torch.cat((self.dropout(x), context), dim=-1), state, real)
            x = hidden + x if at and self.residual else hidden
            states.append(state)
        losses = [] if record is None else record.losses
        if memory["balance_losses"] is not None:
            losses.append(memory["balance_losses"].mean(0))
        return DecoderOutput(self.out(x), states, balance_losses(torch.stack(losses).sum(0), self.balance) if losses else {})

    if TYPE_CHECKING:
        __call__ = forward


class GNMT(Recurrent):
    def __init__(self, config: GNMTConfig, source_vocab: int, target_vocab: int) -> None:
        super().__init__(config, source_vocab, target_vocab)
        self.encoder = DeepEncoder(config)
        self.decoder = DeepDecoder(config)
