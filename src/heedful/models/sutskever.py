"""A fixed vector: the encoder's last state is all that the decoder knows of the source
("Sequence to Sequence Learning with Neural Networks", Sutskever et al., 2014).

    source, from its end -> LSTM layers -> their last states -> LSTM layers -> target
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from torch import Tensor, nn

from heedful.models.recurrent import Recurrent, RecurrentConfig, Said, Thought, stack
from heedful.nn.recurrent import OneWay, Read, Stack
from heedful.nn.rows import Tree
from heedful.nn.taps import Tap
from heedful.schema import SmallCount


class SutskeverConfig(RecurrentConfig):
    """Sizes default to the paper's."""

    family: Literal["sutskever"] = "sutskever"  # model family
    layers: SmallCount = 4  # layers of the encoder and of the decoder
    cell: Literal["lstm", "gru"] = "lstm"  # recurrent cell
    reverse: bool = True  # reverse the source sentence


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


class Sutskever(Recurrent):
    def __init__(self, config: SutskeverConfig, source_vocab: int, target_vocab: int) -> None:
        super().__init__(config, source_vocab, target_vocab)
        self.encoder = OneWay(stack(config), config.reverse)
        self.decoder = FixedVector(stack(config))
