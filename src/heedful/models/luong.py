"""Attention after the recurrence: the decoder looks with its new state, everywhere or near a center; what it finds enters its
answer and, if fed, its next input ("Effective Approaches to Attention-based Neural Machine Translation", Luong et al., 2015).

    s_t = LSTM(s_{t-1}, [y_{t-1}, a_{t-1}])     c_t = sum_s softmax(score(s_t, h_s)) h_s     a_t = tanh(W [c_t, s_t])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from torch import Tensor, nn

from heedful.models.recurrent import DecoderOutput, InitialState, Recurrent, RecurrentConfig, stack
from heedful.nn.decoder_state import Tree
from heedful.nn.hooks import HookPoint
from heedful.nn.recurrent import EncoderOutput, Unidirectional
from heedful.nn.recurrent_attention import AttentionAfterStep, RecurrentState
from heedful.nn.scores import SCOPES, SCORES, Location, SourceAttention
from heedful.schema import Probability, Problem, Size, SmallCount, unused


class LuongConfig(RecurrentConfig):
    """Sizes default to the paper's."""

    family: Literal["luong"] = "luong"
    """Model family."""
    layers: SmallCount = 4
    """Layers of the encoder and of the decoder."""
    cell: Literal["lstm", "gru"] = "lstm"
    """Recurrent cell."""
    reverse: bool = False
    """Reverse the source sentence."""
    score: Literal["dot", "general", "concat", "location"] = "general"
    """Attention score function."""
    scope: Literal["global", "local-m", "local-p"] = "global"
    """Global attention, or local with monotonic or predicted center."""
    radius: Size = 10
    """Half-width of the window of local attention."""
    places: Size = 512
    """Maximum source length of the location score."""
    feed: bool = True
    """Input feeding: attentional vectors are fed into the next step."""
    dropout: Probability = 0.2
    """Dropout of embeddings, between layers, and before the output."""

    def problems(self) -> list[Problem]:
        idle = {"radius": "global attention sees everything"} if self.scope == "global" else {}
        if self.score != "location":
            idle["places"] = f"a score {self.score!r} knows no places"
        return [*super().problems(), *unused(self, idle)]

    def problems_with(self, *, shared: bool, source: int, target: int) -> list[Problem]:
        found = super().problems_with(shared=shared, source=source, target=target)
        if self.score == "location" and self.places < source:
            found.append(
                Problem("places", f"given {self.places}, expected at least {source}, the tokens of the longest source")
            )
        return found


class AfterDecoder(nn.Module):
    """Luong's: it begins where the encoder ended, and looks with every new state."""

    def __init__(self, config: LuongConfig) -> None:
        super().__init__()
        dim = config.dim
        scope = None if config.scope == "global" else SCOPES[config.scope](dim, config.radius)
        score = Location(dim, config.places) if config.score == "location" else SCORES[config.score](dim, dim)
        attention = SourceAttention(score, scope)
        self.start = InitialState()
        self.recurrence = AttentionAfterStep(stack(config, fed=dim if config.feed else 0), attention, dim, feeds=config.feed)
        self.out = HookPoint()

    def begin(self, read: EncoderOutput, mask: Tensor | None) -> tuple[Tree, Tree]:
        return self.recurrence.cross_attention.remember(read.words, mask), tuple(self.recurrence.begin(self.start(read.last)))

    def forward(self, x: Tensor, memory: Tree, row_state: Tree, real: Tensor | None) -> DecoderOutput:
        answers, after = self.recurrence(x, memory, RecurrentState(*row_state), real)
        return DecoderOutput(self.out(answers), tuple(after), {})

    if TYPE_CHECKING:
        __call__ = forward


class Luong(Recurrent):
    def __init__(self, config: LuongConfig, source_vocab: int, target_vocab: int) -> None:
        super().__init__(config, source_vocab, target_vocab)
        self.encoder = Unidirectional(stack(config), config.reverse)
        self.decoder = AfterDecoder(config)
