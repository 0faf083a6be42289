"""Recurrent sequence-to-sequence models: an encoder walks along the source, a decoder along the target.

    sutskever   the encoder's last state is all that the decoder knows         Sutskever et al., 2014
    bahdanau    the decoder looks at all that was read before every token,     Bahdanau et al., 2015
                with the state it has; what it finds enters its next state
    luong       it looks after every token, with its new state; what it        Luong et al., 2015
                finds enters its answer and, if fed, its next input

All are `Recurrent`: words to vectors, an encoder, a decoder, and back to words. An encoder is `x, mask -> Read`; a decoder
is `begin(read, mask) -> memory, past` and `x, memory, past, real -> Said`. GNMT stands in its own file.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import torch
from pydantic import PositiveInt, model_validator
from torch import Tensor, nn

from heedful.models.family import FamilyConfig
from heedful.models.transformer import embedding
from heedful.nn.dropout import Dropout
from heedful.nn.linear import Readout, linear
from heedful.nn.looking import After, LooksAfter, LooksBefore
from heedful.nn.losses import Loss
from heedful.nn.recurrent import CELLS, BothWays, Gru, Hidden, Layer, OneWay, Read, Stack
from heedful.nn.rows import State, Step, Tree
from heedful.nn.scores import SCOPES, SCORES, Additive, Location, SourceAttention
from heedful.nn.taps import Tap
from heedful.schema import Probability, Problem, refuse, unused


class RecurrentConfig(FamilyConfig):
    """What all recurrent families are told."""

    family: str
    dim: PositiveInt = 1000  # of every layer's state
    embedding: PositiveInt | None = None  # as `dim` unless said
    tie: Literal["all", "output", "none"] = "none"  # all: one matrix for both embeddings and the output
    dropout: Probability = 0.0  # of embeddings, between layers, and of what is said

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

    def misfits(self, *, shared: bool, source: int, target: int) -> list[Problem]:
        if self.tie == "all" and not shared:
            return [Problem("tie", "given 'all', but the vocabularies are separate; expected 'output' or 'none'")]
        return []


class SutskeverConfig(RecurrentConfig):
    """Sizes default to the paper's."""

    family: Literal["sutskever"] = "sutskever"
    layers: PositiveInt = 4
    cell: Literal["lstm", "gru"] = "lstm"
    reverse: bool = True  # read the source from its end


class BahdanauConfig(RecurrentConfig):
    """Sizes default to the paper's."""

    family: Literal["bahdanau"] = "bahdanau"
    embedding: PositiveInt | None = 620
    readout: PositiveInt = 500  # of what is compared with the words to say: the larger of each pair of twice as many

    @property
    def said_dim(self) -> int:
        return self.readout


class LuongConfig(RecurrentConfig):
    """Sizes default to the paper's."""

    family: Literal["luong"] = "luong"
    layers: PositiveInt = 4
    cell: Literal["lstm", "gru"] = "lstm"
    reverse: bool = False  # read the source from its end
    score: Literal["dot", "general", "concat", "location"] = "general"
    scope: Literal["global", "local-m", "local-p"] = "global"
    radius: PositiveInt = 10  # of local attention: how far from its centre it sees
    places: PositiveInt = 512  # of a score by location: how many it knows
    feed: bool = True  # what was said enters the next input
    dropout: Probability = 0.2

    def problems(self) -> list[Problem]:
        idle = {"radius": "global attention sees everything"} if self.scope == "global" else {}
        if self.score != "location":
            idle["places"] = f"a score {self.score!r} knows no places"
        return [*super().problems(), *unused(self, idle)]

    def misfits(self, *, shared: bool, source: int, target: int) -> list[Problem]:
        found = super().misfits(shared=shared, source=source, target=target)
        if self.score == "location" and self.places < source:
            found.append(
                Problem("places", f"given {self.places}, expected at least {source}, the tokens of the longest source")
            )
        return found


class Said(NamedTuple):
    """What a decoder answers."""

    hidden: Tensor  # (rows, time, said_dim)
    past: Tree
    losses: dict[str, Loss]  # what it wants minimised besides


class Thought(nn.Module):
    """The tap on the vector with which a decoder begins."""

    def __init__(self) -> None:
        super().__init__()
        self.thought = Tap()  # (sources, layers x states of a layer, dim)

    def forward(self, last: list[Hidden]) -> list[Hidden]:
        if not self.thought.wanted:
            return last
        together = self.thought(torch.stack([each for state in last for each in state], dim=1)).unbind(1)
        size = len(last[0])
        return [tuple(together[at : at + size]) for at in range(0, len(together), size)]

    if TYPE_CHECKING:
        __call__ = forward


class FixedVector(nn.Module):
    """A decoder that begins where the encoder ended, and knows nothing else of the source."""

    def __init__(self, stack: Stack) -> None:
        super().__init__()
        self.start = Thought()
        self.stack = stack
        self.out = Tap()

    def begin(self, read: Read, mask: Tensor | None) -> tuple[Tree, Tree]:
        return None, self.start(read.last)

    def forward(self, x: Tensor, memory: Tree, past: Tree, real: Tensor | None) -> Said:
        said, past = self.stack(x, past, real)
        return Said(self.out(said), past, {})

    if TYPE_CHECKING:
        __call__ = forward


class InsideDecoder(nn.Module):
    """Bahdanau's: the state, the last word and what was found answer through a layer of maxima of pairs."""

    def __init__(self, config: BahdanauConfig) -> None:
        super().__init__()
        dim, words = config.dim, config.word_dim
        self.dim = dim
        self.first = linear(dim, dim)
        self.recurrence = LooksBefore(Gru(words, dim, fed=2 * dim), SourceAttention(Additive(dim, 2 * dim)))
        self.answer = linear(words + 3 * dim, 2 * config.readout)
        self.out = Tap()

    def begin(self, read: Read, mask: Tensor | None) -> tuple[Tree, Tree]:
        backwards = read.words[:, 0, self.dim :]  # (sources, dim): of the first word, which was read last
        return self.recurrence.cross.remember(read.words, mask), (self.first(backwards).tanh(),)

    def forward(self, x: Tensor, memory: Tree, past: Tree, real: Tensor | None) -> Said:
        said, found, past = self.recurrence(x, memory, past, real)
        pairs = self.answer(torch.cat((said, x, found), dim=-1))  # (rows, time, 2 x readout)
        return Said(self.out(pairs.view(*x.shape[:2], -1, 2).amax(-1)), past, {})

    if TYPE_CHECKING:
        __call__ = forward


class AfterDecoder(nn.Module):
    """Luong's: it begins where the encoder ended, and looks with every new state."""

    def __init__(self, config: LuongConfig) -> None:
        super().__init__()
        dim = config.dim
        scope = None if config.scope == "global" else SCOPES[config.scope](dim, config.radius)
        score = Location(dim, config.places) if config.score == "location" else SCORES[config.score](dim, dim)
        attention = SourceAttention(score, scope)
        self.start = Thought()
        self.recurrence = LooksAfter(stack(config, fed=dim if config.feed else 0), attention, dim, feeds=config.feed)
        self.out = Tap()

    def begin(self, read: Read, mask: Tensor | None) -> tuple[Tree, Tree]:
        return self.recurrence.cross.remember(read.words, mask), tuple(self.recurrence.begin(self.start(read.last)))

    def forward(self, x: Tensor, memory: Tree, past: Tree, real: Tensor | None) -> Said:
        answers, after = self.recurrence(x, memory, After(*past), real)
        return Said(self.out(answers), tuple(after), {})

    if TYPE_CHECKING:
        __call__ = forward


class Encoder(Protocol):
    def __call__(self, x: Tensor, mask: Tensor | None) -> Read:
        """x (sources, time, word_dim), mask (sources, time): padding stands at the end."""


class Decoder(Protocol):
    def begin(self, read: Read, mask: Tensor | None) -> tuple[Tree, Tree]:
        """What was read as it will be looked at (memory), and what rows know before they say anything (past)."""

    def __call__(self, x: Tensor, memory: Tree, past: Tree, real: Tensor | None) -> Said:
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
        said = self.decoder(words, state.memory, state.past, mask)
        return Step(self.dropout(said.hidden), state._replace(past=said.past), said.losses)

    def project(self, hidden: Tensor) -> Tensor:
        """(…, said_dim) -> logits (…, target vocabulary)."""
        return self.readout(hidden)

    def blocks(self) -> list[nn.Module]:
        """The layers, for those who recompute, shard or compile them one by one."""
        return [module for module in self.modules() if isinstance(module, Layer)]


def stack(config: SutskeverConfig | LuongConfig, fed: int = 0) -> Stack:
    """Layers above each other, of which the lowest takes words and what is fed."""
    cell = CELLS[config.cell]
    above = [cell(config.dim, config.dim) for _ in range(config.layers - 1)]
    return Stack([cell(config.word_dim, config.dim, fed), *above], config.dropout)


class Sutskever(Recurrent):
    def __init__(self, config: SutskeverConfig, source_vocab: int, target_vocab: int) -> None:
        super().__init__(config, source_vocab, target_vocab)
        self.encoder = OneWay(stack(config), config.reverse)
        self.decoder = FixedVector(stack(config))


class Bahdanau(Recurrent):
    def __init__(self, config: BahdanauConfig, source_vocab: int, target_vocab: int) -> None:
        super().__init__(config, source_vocab, target_vocab)
        self.encoder = BothWays(Gru(config.word_dim, config.dim), Gru(config.word_dim, config.dim))
        self.decoder = InsideDecoder(config)


class Luong(Recurrent):
    def __init__(self, config: LuongConfig, source_vocab: int, target_vocab: int) -> None:
        super().__init__(config, source_vocab, target_vocab)
        self.encoder = OneWay(stack(config), config.reverse)
        self.decoder = AfterDecoder(config)
