"""Attention before each decoder step: the previous state attends to a bidirectional encoder, and the context vector is an
input of the next state ("Neural Machine Translation by Jointly Learning to Align and Translate", Bahdanau et al., 2015).

    e_ts = v . tanh(W s_{t-1} + U h_s)     c_t = sum_s softmax(e_t)_s h_s     s_t = GRU(s_{t-1}, [y_{t-1}, c_t])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from heedful.config.base import Size
from heedful.models.recurrent import DecoderOutput, Recurrent, RecurrentConfig
from heedful.nn.decoder_state import Tree
from heedful.nn.hooks import HookPoint
from heedful.nn.linear import linear
from heedful.nn.normalized_recurrent import CELLS
from heedful.nn.recurrent import Bidirectional, EncoderOutput
from heedful.nn.recurrent_attention import AttentionBeforeStep
from heedful.nn.scores import Additive, SourceAttention


class BahdanauConfig(RecurrentConfig):
    """Sizes default to the paper's."""

    family: Literal["bahdanau"] = "bahdanau"
    """Model family."""
    embedding: Size | None = 620
    """Size of word embeddings."""
    readout: Size = 500
    """Size of the maxout layer before the output."""

    @property
    def output_dim(self) -> int:
        return self.readout


class InsideDecoder(nn.Module):
    """Bahdanau's decoder: state, input embedding and context vector go through a maxout layer."""

    def __init__(self, config: BahdanauConfig) -> None:
        super().__init__()
        dim, words = config.dim, config.word_dim
        self.dim = dim
        self.first = linear(dim, dim)
        layer = CELLS[config.norm]["gru"](words, dim, fed=2 * dim)
        self.recurrence = AttentionBeforeStep(layer, SourceAttention(Additive(dim, 2 * dim)))
        self.answer = linear(words + 3 * dim, 2 * config.readout)
        self.out = HookPoint()

    def begin(self, encoded: EncoderOutput, mask: Tensor | None) -> tuple[Tree, Tree]:
        backwards = encoded.hidden[:, 0, self.dim :]  # (sources, dim): the last state of the backward direction
        return self.recurrence.cross_attention.make_memory(encoded.hidden, mask), (self.first(backwards).tanh(),)

    def forward(self, x: Tensor, memory: Tree, row_state: Tree, real: Tensor | None) -> DecoderOutput:
        hidden, context, row_state = self.recurrence(x, memory, row_state, real)
        pairs = self.answer(torch.cat((hidden, x, context), dim=-1))  # (rows, time, 2 x readout)
        return DecoderOutput(self.out(pairs.view(*x.shape[:2], -1, 2).amax(-1)), row_state, {})

    if TYPE_CHECKING:
        __call__ = forward


class Bahdanau(Recurrent):
    def __init__(self, config: BahdanauConfig, source_vocab: int, target_vocab: int) -> None:
        super().__init__(config, source_vocab, target_vocab)
        gru = CELLS[config.norm]["gru"]
        self.encoder = Bidirectional(gru(config.word_dim, config.dim), gru(config.word_dim, config.dim))
        self.decoder = InsideDecoder(config)
