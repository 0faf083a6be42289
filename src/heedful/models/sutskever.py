"""Encoder-decoder without attention: the encoder's last state is the decoder's initial state
("Sequence to Sequence Learning with Neural Networks", Sutskever et al., 2014).

    reversed source -> LSTM layers -> their last states -> LSTM layers -> target
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from torch import Tensor, nn

from heedful.config.base import SmallCount
from heedful.models.recurrent import DecoderOutput, InitialState, Recurrent, RecurrentConfig, stack
from heedful.nn.decoder_state import Tree
from heedful.nn.hooks import HookPoint
from heedful.nn.recurrent import EncoderOutput, RecurrentStack, Unidirectional


class SutskeverConfig(RecurrentConfig):
    """Sizes default to the paper's."""

    family: Literal["sutskever"] = "sutskever"
    """Model family."""
    layers: SmallCount = 4
    """Layers of the encoder and of the decoder."""
    cell: Literal["lstm", "gru"] = "lstm"
    """Recurrent cell."""
    reverse: bool = True
    """Reverse the source sentence."""


class FixedVector(nn.Module):
    """A decoder that depends on the source through its initial state only."""

    def __init__(self, stack: RecurrentStack) -> None:
        super().__init__()
        self.start = InitialState()
        self.stack = stack
        self.out = HookPoint()

    def begin(self, encoded: EncoderOutput, mask: Tensor | None) -> tuple[Tree, Tree]:
        return None, self.start(encoded.last_states)

    def forward(self, x: Tensor, memory: Tree, row_state: Tree, real: Tensor | None) -> DecoderOutput:
        hidden, row_state = self.stack(x, row_state, real)
        return DecoderOutput(self.out(hidden), row_state, {})

    if TYPE_CHECKING:
        __call__ = forward


class Sutskever(Recurrent):
    def __init__(self, config: SutskeverConfig, source_vocab: int, target_vocab: int) -> None:
        super().__init__(config, source_vocab, target_vocab)
        self.encoder = Unidirectional(stack(config), config.reverse)
        self.decoder = FixedVector(stack(config))
