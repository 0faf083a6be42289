"""Convolution as a sequence layer: gated sums over neighbors, whose past is the last inputs that a sum reaches back to."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor
from torch.nn import functional

from heedful.nn import convolution
from heedful.nn.decoder_state import Tree
from heedful.nn.sequence_layers.base import LayerSize, LayerState, SequenceLayer, StepContext


class Convolution(SequenceLayer):
    """A weighted sum over k neighbors, half of which opens and shuts the other (gated linear units, Dauphin et al., 2017)."""

    cost, path = "k n d^2", "n / k"
    takes: ClassVar[tuple[str, ...]] = ("kernel",)
    remark = "gated, so 2 d sums for each token, half of which open and shut the others"

    def __init__(self, size: LayerSize, dilation: int = 1) -> None:
        super().__init__(size)
        self.sum = convolution.Convolution(size.dim, 2 * size.dim, size.kernel, dilation)

    def mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        known = x if mask is None else x.masked_fill(~mask[..., None], 0.0)
        if self.size.causal:
            return functional.glu(self.sum.follow(known, self.beginning(x.shape[0], x), None)[0])
        return functional.glu(self.sum.around(known))

    def beginning(self, rows: int, like: Tensor) -> Tensor:
        return self.sum.beginning(rows, like)

    def extend(self, x: Tensor, kept: LayerState, now: StepContext) -> tuple[Tensor, Tree]:
        sums, row_state = self.sum.follow(x, kept.row_state, None if now.real is None else now.real.sum(1))
        return functional.glu(sums), row_state

    @staticmethod
    def operations(size: LayerSize, time: int) -> int:
        return size.kernel * time * size.dim**2

    @staticmethod
    def products(*, causal: bool) -> str:
        return "4 k n d^2"


class DilatedConvolution(Convolution):
    """The same with gaps (ByteNet, Kalchbrenner et al., 2016): stacked with growing gaps it sees far in few layers."""

    path, takes = "log_k n", ("kernel", "dilation")

    def __init__(self, size: LayerSize) -> None:
        super().__init__(size, size.dilation)
