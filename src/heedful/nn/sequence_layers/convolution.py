"""Convolution as a sequence layer; its state is the inputs that the next windows cover."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor
from torch.nn import functional

from heedful.nn import convolution
from heedful.nn.decoder_state import Tree
from heedful.nn.sequence_layers.base import LayerSize, LayerState, SequenceLayer
from heedful.nn.step_context import StepContext


class Convolution(SequenceLayer):
    """A convolution of width k with gated linear units: one half gates the other (Dauphin et al., 2017)."""

    cost, path = "k n d^2", "n / k"
    options: ClassVar[tuple[str, ...]] = ("kernel",)
    remark = "gated, so 2 d outputs for each token, half of which gate the others"

    def __init__(self, size: LayerSize, dilation: int = 1) -> None:
        super().__init__(size)
        self.sum = convolution.Convolution(size.dim, 2 * size.dim, size.kernel, dilation)

    def mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        real = x if mask is None else x.masked_fill(~mask[..., None], 0.0)
        if self.size.causal:
            return functional.glu(self.sum.causal(real, self.initial_state(x.shape[0], x), None)[0])
        return functional.glu(self.sum.centered(real))

    def initial_state(self, rows: int, like: Tensor) -> Tensor:
        return self.sum.initial_state(rows, like)

    def mix_step(self, x: Tensor, state: LayerState, step: StepContext) -> tuple[Tensor, Tree]:
        sums, row_state = self.sum.causal(x, state.row_state, None if step.real is None else step.real.sum(1))
        return functional.glu(sums), row_state

    @staticmethod
    def operations(size: LayerSize, time: int) -> int:
        return size.kernel * time * size.dim**2

    @staticmethod
    def products(*, causal: bool) -> str:
        return "4 k n d^2"


class DilatedConvolution(Convolution):
    """Dilated convolution (ByteNet, Kalchbrenner et al., 2016): with growing dilations, few layers cover long distances."""

    path, options = "log_k n", ("kernel", "dilation")

    def __init__(self, size: LayerSize) -> None:
        super().__init__(size, size.dilation)
