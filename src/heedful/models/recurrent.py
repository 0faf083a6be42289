"""What recurrent sequence-to-sequence models have in common: an encoder walks along the source, a decoder along the target.

    sutskever   the encoder's last state is all that the decoder knows
    bahdanau    the decoder looks at all that was read before every token, with the state it has
    luong       it looks after every token, with its new state
    gnmt        it looks with the state of its lowest layer, and all others are told

Each stands in its own file. All are `Recurrent`: words to vectors, an encoder, a decoder, and back to words. An encoder is
`x, mask -> Read`; a decoder is `begin(read, mask) -> memory, past` and `x, memory, past, real -> Said`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import torch
from pydantic import model_validator
from torch import Tensor, nn

from heedful.models.family import FamilyConfig, tying_problems
from heedful.models.transformer import embedding
from heedful.nn.decoder_state import State, Step, Tree
from heedful.nn.dropout import Dropout
from heedful.nn.hooks import HookPoint
from heedful.nn.linear import Readout
from heedful.nn.losses import Loss
from heedful.nn.recurrent import CELLS, EncoderOutput, Hidden, Layer, RecurrentStack
from heedful.schema import Probability, Problem, Size, refuse


class RecurrentConfig(FamilyConfig):
    """What all recurrent families are told."""

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

    @property
    def word_dim(self) -> int:
        return self.embedding or self.dim

    @property
    def said_dim(self) -> int:
        """Of what is compared with the words to say."""
        return self.dim

    def problems(self) -> list[Problem]:
        if self.tie == "none" or self.word_dim == self.said_dim:
            return []
        sentence = f"given {self.tie!r}, but embeddings have {self.word_dim} numbers and what is said has {self.said_dim}"
        return [Problem("tie", f"{sentence}; expected 'none', or equal sizes")]

    @model_validator(mode="after")
    def _fits_together(self) -> RecurrentConfig:
        refuse(self.problems())
        return self

    def problems_with(self, *, shared: bool, source: int, target: int) -> list[Problem]:
        return tying_problems(self.tie, shared=shared)


class DecoderOutput(NamedTuple):
    """What a decoder answers."""

    hidden: Tensor  # (rows, time, said_dim)
    row_state: Tree
    losses: dict[str, Loss]  # what it wants minimized besides


class InitialState(nn.Module):
    """The tap on the vector with which a decoder begins."""

    def __init__(self) -> None:
        super().__init__()
        self.thought = HookPoint()  # (sources, layers x states of a layer, dim)

    def forward(self, last: list[Hidden]) -> list[Hidden]:
        if not self.thought.wanted:
            return last
        together = self.thought(torch.stack([each for state in last for each in state], dim=1)).unbind(1)
        size = len(last[0])
        return [tuple(together[at : at + size]) for at in range(0, len(together), size)]

    if TYPE_CHECKING:
        __call__ = forward


class Encoder(Protocol):
    def __call__(self, x: Tensor, mask: Tensor | None) -> EncoderOutput:
        """x (sources, time, word_dim), mask (sources, time): padding stands at the end."""


class Decoder(Protocol):
    def begin(self, read: EncoderOutput, mask: Tensor | None) -> tuple[Tree, Tree]:
        """What was read as it will be looked at (memory), and what rows know before they say anything (past)."""

    def __call__(self, x: Tensor, memory: Tree, row_state: Tree, real: Tensor | None) -> DecoderOutput:
        """x (rows, time, word_dim), real (rows, time): which tokens count."""


class Recurrent(nn.Module):
    """What the families have in common: all but the encoder and the decoder."""

    encoder: Encoder
    decoder: Decoder

    def __init__(self, config: RecurrentConfig, source_vocab: int, target_vocab: int) -> None:
        super().__init__()
        self.config = config
        self.target_embedding = embedding(target_vocab, config.word_dim)
        self.source_embedding = None if config.tie == "all" else embedding(source_vocab, config.word_dim)
        self.output = None if config.tie != "none" else embedding(target_vocab, config.said_dim)
        self.readout = Readout(self.target_embedding if self.output is None else self.output)
        self.scale = math.sqrt(config.word_dim)  # tables begin small, as outputs should, and inputs should not
        self.dropout = Dropout(config.dropout)

    @property
    def longest(self) -> int | None:
        return None

    def start(self, source: Tensor, source_mask: Tensor | None, *, room: int) -> State:
        """source (sources, time), source_mask (sources, time) or None: nothing is padded."""
        table = self.target_embedding if self.source_embedding is None else self.source_embedding
        read = self.encoder(self.dropout(table(source) * self.scale), source_mask)
        return State(*self.decoder.begin(read, source_mask))

    def step(self, tokens: Tensor, state: State, mask: Tensor | None = None) -> Step:
        """tokens (rows, time): the next token, a chunk, or a whole target; mask (rows, time): which of them are real."""
        words = self.dropout(self.target_embedding(tokens) * self.scale)  # (rows, time, word_dim)
        said = self.decoder(words, state.memory, state.row_state, mask)
        return Step(self.dropout(said.hidden), state._replace(row_state=said.row_state), said.losses)

    def project(self, hidden: Tensor) -> Tensor:
        """(…, said_dim) -> logits (…, target vocabulary)."""
        return self.readout(hidden)

    def blocks(self) -> list[nn.Module]:
        """The layers, for those who recompute, shard or compile them one by one."""
        return [module for module in self.modules() if isinstance(module, Layer)]


class Stacked(Protocol):
    """A config of layers above each other."""

    @property
    def dim(self) -> int: ...
    @property
    def word_dim(self) -> int: ...
    @property
    def layers(self) -> int: ...
    @property
    def cell(self) -> str: ...
    @property
    def dropout(self) -> float: ...


def stack(config: Stacked, fed: int = 0) -> RecurrentStack:
    """Layers above each other, of which the lowest takes words and what is fed."""
    cell = CELLS[config.cell]
    above = [cell(config.dim, config.dim) for _ in range(config.layers - 1)]
    return RecurrentStack([cell(config.word_dim, config.dim, fed), *above], config.dropout)
