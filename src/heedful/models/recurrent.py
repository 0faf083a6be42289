"""Base class of recurrent sequence-to-sequence models.

    sutskever   no attention: the encoder's last state is the decoder's initial state
    bahdanau    attention before each step, with the previous state
    luong       attention after each step, with the new state
    gnmt        attention with the previous state of the lowest layer; all layers use its context vector
    hran        attention to the words of each turn of a dialogue, and to the turns

Each is in its own file. All are `Recurrent`: embeddings, an encoder, a decoder, and an output layer. An encoder is
`x, mask -> EncoderOutput`; a decoder is `begin(encoded, mask) -> memory, row_state` and
`x, memory, row_state, real -> DecoderOutput`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import torch
from pydantic import model_validator
from torch import Tensor, nn

from heedful.config.base import Probability, Problem, Size, refuse
from heedful.models.family import FamilyConfig, tying_problems
from heedful.nn.decoder_state import State, Step, Tree
from heedful.nn.dropout import Dropout
from heedful.nn.embeddings import Embeddings
from heedful.nn.hooks import HookPoint
from heedful.nn.losses import Loss
from heedful.nn.model import CROSS, AttentionLayer, LayerOutput, SequenceModel
from heedful.nn.normalized_recurrent import CELLS
from heedful.nn.recurrent import EncoderOutput, Hidden, Layer, RecurrentStack
from heedful.nn.scores import SourceAttention


class RecurrentConfig(FamilyConfig):
    """Options of all recurrent families."""

    family: str
    """Model family."""
    dim: Size = 1000
    """Size of the hidden state."""
    embedding: Size | None = None
    """Size of word embeddings; default: dim."""
    tie: Literal["all", "output", "none"] = "none"
    """Shared weights: both embeddings and output, target and output, none."""
    dropout: Probability = 0.0
    """Dropout of embeddings, between layers, and before the output."""
    norm: Literal["none", "layer"] = "none"
    """Layer normalization of the summed inputs of the recurrent gates."""

    @property
    def word_dim(self) -> int:
        return self.embedding or self.dim

    @property
    def output_dim(self) -> int:
        """Size of the output layer's input."""
        return self.dim

    def problems(self) -> list[Problem]:
        if self.tie == "none" or self.word_dim == self.output_dim:
            return []
        sentence = f"given {self.tie!r}, but embeddings have size {self.word_dim} and the output layer {self.output_dim}"
        return [Problem("tie", f"{sentence}; expected 'none', or equal sizes")]

    @model_validator(mode="after")
    def _fits_together(self) -> RecurrentConfig:
        refuse(self.problems())
        return self

    def problems_with(self, *, shared: bool, source: int, target: int) -> list[Problem]:
        return tying_problems(self.tie, shared=shared)


class DecoderOutput(NamedTuple):
    """Output of a decoder."""

    hidden: Tensor  # (rows, time, output_dim)
    row_state: Tree
    losses: dict[str, Loss]  # auxiliary losses


class InitialState(nn.Module):
    """The hook point of a decoder's initial state."""

    def __init__(self) -> None:
        super().__init__()
        self.thought = HookPoint()  # (sources, layers x states of a layer, dim)

    def forward(self, last_states: list[Hidden]) -> list[Hidden]:
        if not self.thought.has_hooks:
            return last_states
        tensors = self.thought(torch.stack([tensor for state in last_states for tensor in state], dim=1)).unbind(1)
        size = len(last_states[0])
        return [tuple(tensors[at : at + size]) for at in range(0, len(tensors), size)]

    if TYPE_CHECKING:
        __call__ = forward


class Encoder(Protocol):
    def layer_outputs(self) -> list[HookPoint]:
        """Hook points of the hidden states (sources, time, dim), lowest first."""

    def __call__(self, x: Tensor, mask: Tensor | None, /) -> EncoderOutput:
        """x (sources, time, word_dim), mask (sources, time): padding is at the end."""


class Decoder(Protocol):
    out: HookPoint  # hidden states before the output layer

    def begin(self, encoded: EncoderOutput, mask: Tensor | None, /) -> tuple[Tree, Tree]:
        """The memory that the decoder attends to, and its initial row state."""

    def __call__(self, x: Tensor, memory: Tree, row_state: Tree, real: Tensor | None) -> DecoderOutput:
        """x (rows, time, word_dim), real (rows, time): padding mask."""


class Recurrent(SequenceModel):
    """Everything but the encoder and the decoder."""

    encoder: Encoder
    decoder: Decoder

    def __init__(self, config: RecurrentConfig, source_vocab: int, target_vocab: int) -> None:
        super().__init__()
        self.config = config
        words = config.word_dim
        scale = math.sqrt(words)  # the small initial weights suit the output layer, not the inputs
        self.embedding = Embeddings(
            source_vocab, target_vocab, words, tie=config.tie, scale=scale, output_dim=config.output_dim
        )
        self.dropout = Dropout(config.dropout)

    def attentions(self) -> list[AttentionLayer]:
        attending = [module for module in self.modules() if isinstance(module, SourceAttention)]
        return [one for at, module in enumerate(attending) for one in self.attention(CROSS, at, module)]

    def layer_outputs(self) -> list[LayerOutput]:
        initial = [module.thought for module in self.modules() if isinstance(module, InitialState)]
        outputs = [self.layer_output("source", at, point) for at, point in enumerate(self.encoder.layer_outputs())]
        outputs += [self.layer_output("state", 0, point) for point in initial]
        return [*outputs, self.layer_output("target", 0, self.decoder.out)]

    def start(self, source: Tensor, source_mask: Tensor | None, *, room: int) -> State:
        encoded = self.encoder(self.dropout(self.embedding.embed("source", source)), source_mask)
        return State(*self.decoder.begin(encoded, source_mask))

    def step(self, tokens: Tensor, state: State, mask: Tensor | None = None) -> Step:
        x = self.dropout(self.embedding.embed("target", tokens))  # (rows, time, word_dim)
        out = self.decoder(x, state.memory, state.row_state, mask)
        return Step(self.dropout(out.hidden), state._replace(row_state=out.row_state), out.losses)

    def project(self, hidden: Tensor) -> Tensor:
        return self.embedding.project(hidden)

    def blocks(self) -> list[nn.Module]:
        return [module for module in self.modules() if isinstance(module, Layer)]


class Stacked(Protocol):
    """A config of a stack of recurrent layers."""

    @property
    def dim(self) -> int: ...
    @property
    def word_dim(self) -> int: ...
    @property
    def layers(self) -> int: ...
    @property
    def cell(self) -> str: ...
    @property
    def norm(self) -> str: ...
    @property
    def dropout(self) -> float: ...


def stack(config: Stacked, fed: int = 0) -> RecurrentStack:
    """A stack of layers; the inputs of the lowest are embeddings and `fed` further elements."""
    cell = CELLS[config.norm][config.cell]
    above = [cell(config.dim, config.dim) for _ in range(config.layers - 1)]
    return RecurrentStack([cell(config.word_dim, config.dim, fed), *above], config.dropout)
