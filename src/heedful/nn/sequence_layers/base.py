"""What every sequence layer is: a function of a whole sequence, which a causal one can also be told piece by piece.

    forward    x, mask      -> out            all tokens at once
    follow     x, kept, now -> out, past      the tokens that come next

What a layer keeps is of two sorts, as in `nn/rows.py`: a past moves with its row (a recurrent state, the last inputs of a
convolution), what is written stays in slots that the rows of a source share (keys and values).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

import torch
from pydantic import model_validator
from torch import Tensor, nn

from heedful.nn import masks
from heedful.nn.decoder_state import State, Tree, allocate, write
from heedful.nn.dropout import Dropout
from heedful.schema import Config, Probability, Problem, Size, SmallCount, refuse


class LayerSize(Config):
    """What a layer may be told; each kind takes from it what it needs."""

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
    """Read only the tokens so far."""
    dropout: Probability = 0.0
    """Dropout of the layer's output."""

    @model_validator(mode="after")
    def _divides(self) -> Self:
        problems = []
        if self.dim % self.heads:
            problems.append(Problem("heads", f"given {self.heads}, expected a divisor of dim = {self.dim}"))
        if not self.causal and self.dim % 2:
            problems.append(Problem("dim", f"given {self.dim}, expected an even number: half reads forwards, half backwards"))
        refuse(problems)
        return self


class LayerState(NamedTuple):
    """What a layer knows of all that came before."""

    row_state: Tree = None  # (rows, …)
    kv_cache: Tree = None  # (sources, slots, …)


class StepContext(NamedTuple):
    """New tokens that follow others: what all layers of a stack share. The rows of a source look at one memory together,
    so to them time is (new = beam x time)."""

    real: Tensor | None  # (rows, time): which tokens count, those first; None: all
    owned_slots: Tensor  # (rows, slots): as in a state, with the new slots marked
    slots: Tensor | slice  # where the new tokens are written
    positions: Tensor  # (sources, new)
    key_positions: Tensor  # (sources, slots): of all that is written so far
    seen: Tensor  # (sources, new, slots): what of it is a token's own past, or itself

    def together(self, x: Tensor) -> Tensor:
        """(rows, time, dim) -> (sources, new, dim)."""
        return x.reshape(self.positions.shape[0], -1, x.shape[-1])


def step_context(state: State, tokens: Tensor, real: Tensor | None) -> StepContext:
    """tokens and real (rows, time): they come next, the real ones first; their slots and positions are noted in the state."""
    assert state.owned_slots is not None and state.kv_cache is not None, (
        "who goes on needs room: tell `start` how much is to come"
    )
    sources, time = state.kv_cache["positions"].shape[0], tokens.shape[1]
    beam = tokens.shape[0] // sources
    said = state.owned_slots.sum(-1, keepdim=True)  # (rows, 1)
    positions = (said + torch.arange(time, device=tokens.device)).view(sources, -1)  # (sources, new)
    owned_slots, slots = allocate(state, beam, tokens, real)
    key_positions = write(state.kv_cache["positions"], slots, positions)  # (sources, slots)
    seen = owned_slots[:, : key_positions.shape[1]].view(sources, beam, 1, -1).expand(-1, -1, time, -1).flatten(1, 2)
    if time > 1:
        seen = seen & masks.causal(positions, key_positions)
    return StepContext(real, owned_slots, slots, positions, key_positions, seen)


class SequenceLayer(nn.Module):
    """A kind overrides `mix`, and says what it costs; `extend` is `mix` for tokens that come later."""

    cost: ClassVar[str]  # operations, as in the table of kinds
    steps: ClassVar[str] = "1"  # that must follow one another
    path: ClassVar[str] = "1"  # between the two tokens that are farthest apart: how many layers or steps
    takes: ClassVar[tuple[str, ...]] = ()  # what it needs of a LayerSize, besides what all need
    remark: ClassVar[str] = ""  # what its products have that `cost` does not tell

    def __init__(self, size: LayerSize) -> None:
        super().__init__()
        self.size = size
        self.dropout = Dropout(size.dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """x (rows, time, dim), mask (rows, time), True for real tokens -> (rows, time, dim)."""
        out = self.dropout(self.mix(x, mask))
        return out if mask is None else out.masked_fill(~mask[..., None], 0.0)

    def follow(self, x: Tensor, kept: LayerState, now: StepContext) -> tuple[Tensor, Tree]:
        """x (rows, time, dim): the next tokens -> (rows, time, dim), and the past; what is written is written in place."""
        assert self.size.causal, "a layer that looks ahead cannot be fed token by token"
        out, row_state = self.extend(x, kept, now)
        return self.dropout(out), row_state

    def mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        raise NotImplementedError

    def extend(self, x: Tensor, kept: LayerState, now: StepContext) -> tuple[Tensor, Tree]:
        raise NotImplementedError

    def beginning(self, rows: int, like: Tensor) -> Tree:
        """The past of those who have heard nothing."""
        return None

    def slots(self, sources: int, room: int, like: Tensor) -> Tree:
        """Where the rows of each source will write, `room` tokens together."""
        return None

    @staticmethod
    def operations(size: LayerSize, time: int) -> int:
        """`cost` with numbers in it."""
        raise NotImplementedError

    @staticmethod
    def products(*, causal: bool) -> str:
        """FLOP of all its matrix products for one sequence, 2 for a multiplication and an addition, by n, d, r and k."""
        raise NotImplementedError

    if TYPE_CHECKING:
        __call__ = forward
