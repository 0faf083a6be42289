"""Deep-Att: very deep LSTM stacks with fast-forward connections ("Deep Recurrent Models with Fast-Forward Connections for
Neural Machine Translation", Zhou et al., 2016).

    f_1 = W_1 x     h_k = lstm_k(f_k)     f_{k+1} = W_{k+1} [f_k; h_k]

A chain of linear maps without recurrence connects the embeddings to the top; along it gradients reach the lowest of sixteen
layers. Encoder layers alternate between left-to-right and right-to-left; the outputs of two such columns, which start in
opposite directions, are concatenated. Layer 1 of the decoder attends as Bahdanau's does, with input [y; c]; only this layer
runs token by token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from heedful.config.base import Probability, Size, SmallCount
from heedful.models.recurrent import DecoderOutput, Recurrent, RecurrentConfig
from heedful.nn.decoder_state import Tree
from heedful.nn.dropout import Dropout
from heedful.nn.hooks import HookPoint
from heedful.nn.layers import Layers
from heedful.nn.linear import linear
from heedful.nn.normalized_recurrent import CELLS
from heedful.nn.recurrent import EncoderOutput
from heedful.nn.recurrent_attention import AttentionBeforeStep
from heedful.nn.scores import Additive, SourceAttention

ColumnCount = Annotated[int, Field(ge=1, le=100)]


class DeepAttConfig(RecurrentConfig):
    """Sizes default to the paper's."""

    family: Literal["deep_att"] = "deep_att"
    """Model family."""
    dim: Size = 512
    """Size of the hidden state."""
    layers: SmallCount = 9
    """Encoder layers."""
    decoder_layers: SmallCount | None = None
    """Decoder layers; default: two fewer than `layers`."""
    columns: ColumnCount = 2
    """Encoder columns; they start in alternating directions."""
    straight: bool = True
    """Fast-forward connections; without them the input of a layer is only the output of the layer below."""
    dropout: Probability = 0.1
    """Dropout of embeddings, between layers, and before the output."""

    @property
    def resolved_decoder_layers(self) -> int:
        return self.decoder_layers or max(self.layers - 2, 1)


class Links(nn.Module):
    """W [f; h], the input of the next layer; without fast-forward connections W h."""

    def __init__(self, passed: int, dim: int, *, straight: bool) -> None:
        super().__init__()
        self.straight = straight
        self.map = linear(passed + dim if straight else dim, dim)

    def forward(self, passed: Tensor, hidden: Tensor) -> Tensor:
        """(rows, time, passed), (rows, time, dim) -> (rows, time, dim)."""
        return self.map(torch.cat((passed, hidden), dim=-1) if self.straight else hidden)

    if TYPE_CHECKING:
        __call__ = forward


class Column(nn.Module):
    def __init__(self, config: DeepAttConfig, *, back: bool) -> None:
        super().__init__()
        dim, self.back = config.dim, back
        self.first = linear(config.word_dim, dim)
        self.layers = Layers(CELLS[config.norm]["lstm"](dim, dim) for _ in range(config.layers))
        self.links = Layers(Links(dim, dim, straight=config.straight) for _ in range(config.layers - 1))
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """x (sources, time, word_dim), mask (sources, time): padding is at the end -> (sources, time, dim)."""
        passed, flipped_mask = self.first(x), None if mask is None else mask.flip(1)
        for at, layer in enumerate(self.layers):
            inputs, is_backward = self.dropout(passed), (at % 2 == 1) != self.back
            hidden = layer(inputs.flip(1), None, flipped_mask)[0].flip(1) if is_backward else layer(inputs, None, mask)[0]
            if at < len(self.links):
                passed = self.links[at](passed, hidden)
        return hidden

    if TYPE_CHECKING:
        __call__ = forward


class Columns(nn.Module):
    def __init__(self, config: DeepAttConfig) -> None:
        super().__init__()
        self.columns = Layers(Column(config, back=at % 2 == 1) for at in range(config.columns))
        self.out = HookPoint()

    def forward(self, x: Tensor, mask: Tensor | None) -> EncoderOutput:
        joined = torch.cat([column(x, mask) for column in self.columns], dim=-1)  # (sources, time, columns x dim)
        return EncoderOutput(self.out(joined), [])

    def layer_outputs(self) -> list[HookPoint]:
        return [self.out]

    if TYPE_CHECKING:
        __call__ = forward


class StraightDecoder(nn.Module):
    """A decoder whose initial state is zero: it depends on the source through attention only."""

    def __init__(self, config: DeepAttConfig) -> None:
        super().__init__()
        dim, words, encoder_dim = config.dim, config.word_dim, config.columns * config.dim
        lstm = CELLS[config.norm]["lstm"]
        self.bottom = AttentionBeforeStep(lstm(words, dim, fed=encoder_dim), SourceAttention(Additive(dim, encoder_dim)))
        self.above = Layers(lstm(dim, dim) for _ in range(config.resolved_decoder_layers - 1))
        sizes = [words + encoder_dim] + [dim] * (config.resolved_decoder_layers - 1)
        self.links = Layers(
            Links(passed, dim, straight=config.straight) for passed in sizes
        )  # the last one precedes the output
        self.dropout = Dropout(config.dropout)
        self.out = HookPoint()

    def begin(self, encoded: EncoderOutput, mask: Tensor | None) -> tuple[Tree, Tree]:
        states = [layer.initial_state(encoded.hidden.shape[0], encoded.hidden) for layer in (self.bottom.layer, *self.above)]
        return self.bottom.cross_attention.make_memory(encoded.hidden, mask), states

    def forward(self, x: Tensor, memory: Tree, row_state: Tree, real: Tensor | None) -> DecoderOutput:
        hidden, context, state = self.bottom(x, memory, row_state[0], real)
        passed, states = self.links[0](torch.cat((x, context), dim=-1), hidden), [state]
        for layer, link, before in zip(self.above, list(self.links)[1:], row_state[1:], strict=True):
            hidden, state = layer(self.dropout(passed), before, real)
            passed = link(passed, hidden)
            states.append(state)
        return DecoderOutput(self.out(passed), states, {})

    if TYPE_CHECKING:
        __call__ = forward


class DeepAtt(Recurrent):
    def __init__(self, config: DeepAttConfig, source_vocab: int, target_vocab: int) -> None:
        super().__init__(config, source_vocab, target_vocab)
        self.encoder = Columns(config)
        self.decoder = StraightDecoder(config)
