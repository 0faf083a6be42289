"""Base class of sequence layers: a function of a whole sequence; causal layers also run on its tokens in successive chunks.

    forward    x, mask                  -> out               all tokens at once
    step       x, state, step context   -> out, row state    the next tokens

The state of a layer has two parts, as in `nn/decoder_state.py`: the row state is reordered with its row (a recurrent state,
the last inputs of a convolution), the cache stays in slots that the rows of a source share (keys and values).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, Self

from pydantic import model_validator
from torch import Tensor, nn

from heedful.config.base import Config, Probability, Problem, Size, SmallCount, refuse
from heedful.nn.attention import AttentionBias, SelfAttention
from heedful.nn.decoder_state import Tree
from heedful.nn.dropout import Dropout
from heedful.nn.step_context import StepContext


class LayerSize(Config):
    """Options of sequence layers; each kind uses those in its `options`."""

    dim: Size
    """Size of inputs and outputs."""
    heads: SmallCount = 8
    """Attention heads."""
    window: Size = 128
    """Restricted attention: number of tokens attended to."""
    kernel: SmallCount = 3
    """Width of the convolutions, in tokens."""
    dilation: Size = 2
    """Dilated convolution: distance between the tokens it reads."""
    causal: bool = False
    """Use only the current and previous tokens."""
    recurrent_norm: Literal["none", "layer"] = "none"
    """Layer normalization of the summed inputs of the recurrent gates."""
    dropout: Probability = 0.0
    """Dropout of the layer's output."""

    @model_validator(mode="after")
    def _divides(self) -> Self:
        problems = []
        if self.dim % self.heads:
            problems.append(Problem("heads", f"given {self.heads}, expected a divisor of dim = {self.dim}"))
        if not self.causal and self.dim % 2:
            problems.append(Problem("dim", f"given {self.dim}, expected an even number: one half per direction"))
        refuse(problems)
        return self


class LayerState(NamedTuple):
    """State of a layer after the previous tokens."""

    row_state: Tree = None  # (rows, …)
    kv_cache: Tree = None  # (sources, slots, …)


class SequenceLayer(nn.Module):
    """A subclass overrides `mix`, and `mix_step` for the next tokens of a causal layer, and declares its cost."""

    cost: ClassVar[str]  # operations, as in the table of kinds
    steps: ClassVar[str] = "1"  # number of sequential operations
    path: ClassVar[str] = "1"  # layers or steps between the two most distant tokens
    options: ClassVar[tuple[str, ...]] = ()  # fields of LayerSize that it uses, besides those that all kinds use
    remark: ClassVar[str] = ""  # explains terms of `products` that are not in `cost`

    def __init__(self, size: LayerSize) -> None:
        super().__init__()
        self.size = size
        self.dropout = Dropout(size.dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None, structure: AttentionBias | None = None) -> Tensor:
        """x (rows, time, dim), mask (rows, time), True for real tokens; structure: a further mask or bias of a layer that is
        attention -> (rows, time, dim)."""
        out = self.dropout(self.mix(x, mask) if structure is None else self.mix_within(x, mask, structure))
        return out if mask is None else out.masked_fill(~mask[..., None], 0.0)

    def step(self, x: Tensor, state: LayerState, step: StepContext) -> tuple[Tensor, Tree]:
        """x (rows, time, dim): the next tokens -> (rows, time, dim), and the new row state; the cache is updated in place."""
        assert self.size.causal, "only a causal layer can run token by token"
        out, row_state = self.mix_step(x, state, step)
        return self.dropout(out), row_state

    def mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        raise NotImplementedError

    def mix_within(self, x: Tensor, mask: Tensor | None, structure: AttentionBias) -> Tensor:
        """`mix` with a further mask or bias."""
        raise NotImplementedError

    @classmethod
    def takes_structure(cls) -> bool:
        return cls.mix_within is not SequenceLayer.mix_within

    def mix_step(self, x: Tensor, state: LayerState, step: StepContext) -> tuple[Tensor, Tree]:
        raise NotImplementedError

    def attention(self) -> SelfAttention | None:
        """The self-attention of the layer; None: it has none with heads."""
        return None

    def initial_state(self, rows: int, like: Tensor) -> Tree:
        """The row state before the first token."""
        return None

    def slots(self, sources: int, room: int, like: Tensor) -> Tree:
        """An empty cache of `room` tokens for all rows of each source."""
        return None

    @staticmethod
    def operations(size: LayerSize, time: int) -> int:
        """`cost` evaluated for a size and length."""
        raise NotImplementedError

    @staticmethod
    def products(*, causal: bool) -> str:
        """FLOP of all matrix products for one sequence, 2 per multiply-add, as a formula in n, d, r and k."""
        raise NotImplementedError

    if TYPE_CHECKING:
        __call__ = forward
