"""Attention after each decoder step: the new state attends to the source, globally or near a center, and the attentional
vector gives the output and, with input feeding, a part of the next input ("Effective Approaches to Attention-based Neural
Machine Translation", Luong et al., 2015).

    s_t = LSTM(s_{t-1}, [y_{t-1}, a_{t-1}])     c_t = sum_s softmax(score(s_t, h_s)) h_s     a_t = tanh(W [c_t, s_t])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from torch import Tensor, nn

from heedful.config.base import Probability, Problem, Size, SmallCount, unused
from heedful.models.recurrent import DecoderOutput, InitialState, Recurrent, RecurrentConfig, stack
from heedful.nn.decoder_state import Tree
from heedful.nn.hooks import HookPoint
from heedful.nn.recurrent import EncoderOutput, Unidirectional
from heedful.nn.recurrent_attention import AttentionAfterStep, RecurrentState
from heedful.nn.scores import SCOPES, SCORES, Location, SourceAttention


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
    """Global attention, or local attention with monotonic or predicted center."""
    radius: Size = 10
    """Half-width of the window of local attention."""
    places: Size = 512
    """Location score: maximum source length."""
    feed: bool = True
    """Input feeding: the attentional vector is an input of the next step."""
    dropout: Probability = 0.2
    """Dropout of embeddings, between layers, and before the output."""

    def problems(self) -> list[Problem]:
        reasons = {"radius": "model.scope is 'global', which has no window"} if self.scope == "global" else {}
        if self.score != "location":
            reasons["places"] = f"model.score is {self.score!r}, which does not depend on source positions"
        return [*super().problems(), *unused(self, reasons)]

    def problems_with(self, *, shared: bool, source: int, target: int) -> list[Problem]:
        problems = super().problems_with(shared=shared, source=source, target=target)
        if self.score == "location" and self.places < source:
            expected = f"expected at least {source}, the maximum source length"
            problems.append(Problem("places", f"given {self.places}, {expected}"))
        return problems


class AfterDecoder(nn.Module):
    """Luong's decoder: its initial state is the encoder's last state, and every new state attends to the source."""

    def __init__(self, config: LuongConfig) -> None:
        super().__init__()
        dim = config.dim
        scope = None if config.scope == "global" else SCOPES[config.scope](dim, config.radius)
        score = Location(dim, config.places) if config.score == "location" else SCORES[config.score](dim, dim)
        attention = SourceAttention(score, scope)
        self.start = InitialState()
        self.recurrence = AttentionAfterStep(stack(config, fed=dim if config.feed else 0), attention, dim, feeds=config.feed)
        self.out = HookPoint()

    def begin(self, encoded: EncoderOutput, mask: Tensor | None) -> tuple[Tree, Tree]:
        memory = self.recurrence.cross_attention.make_memory(encoded.hidden, mask)
        return memory, tuple(self.recurrence.initial_state(self.start(encoded.last_states)))

    def forward(self, x: Tensor, memory: Tree, row_state: Tree, real: Tensor | None) -> DecoderOutput:
        hidden, new_state = self.recurrence(x, memory, RecurrentState(*row_state), real)
        return DecoderOutput(self.out(hidden), tuple(new_state), {})

    if TYPE_CHECKING:
        __call__ = forward


class Luong(Recurrent):
    def __init__(self, config: LuongConfig, source_vocab: int, target_vocab: int) -> None:
        super().__init__(config, source_vocab, target_vocab)
        self.encoder = Unidirectional(stack(config), config.reverse)
        self.decoder = AfterDecoder(config)
