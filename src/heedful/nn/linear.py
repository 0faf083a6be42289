"""Linear maps as Transformers begin with them: Xavier's uniform weights (Glorot and Bengio, 2010), biases of zero.

    y = x W^T + b        dx = dy W        dW = dy^T x

On a CPU, oneDNN multiplies large matrices faster than what torch calls for them by itself; the product with the transposed
left side, dW, is as fast without it. Small matrices are over before oneDNN has begun.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

ONEDNN = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
LARGE = 2**24  # multiplications in a product from which oneDNN was measured to win


def dtype_of(x: Tensor) -> torch.dtype:
    """In which products with x are taken: autocast's, or its own."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if not x.is_meta and torch.is_autocast_enabled(device) else x.dtype


def onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x (rows, inputs), weight (outputs, inputs) of any strides, or packed -> (rows, outputs). Knows no gradients."""
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return out


def gains(x: Tensor, weight: Tensor) -> bool:
    """Whether x W^T is faster by oneDNN."""
    return (
        ONEDNN
        and not torch.compiler.is_compiling()
        and x.device.type == "cpu"
        and x.dtype is weight.dtype is torch.float32
        and x.numel() * weight.shape[0] >= LARGE
        and not torch.is_autocast_enabled("cpu")
    )


def product(x: Tensor, weight: Tensor) -> Tensor:
    """x W^T for x (rows, inputs) and weight (outputs, inputs), outside of autograd."""
    return onednn(x, weight) if gains(x, weight) else x @ weight.t()


class _Apply(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        out = onednn(x.reshape(-1, x.shape[-1]), weight, bias)
        return out.view(*x.shape[:-1], out.shape[-1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        slope = gradients[0].reshape(-1, weight.shape[0])  # (rows, outputs)
        to_x = to_weight = to_bias = None
        if ctx.needs_input_grad[0]:  # a graph of the gradient itself is only made of what knows gradients
            to_x = (slope @ weight if torch.is_grad_enabled() else product(slope, weight.t())).view(x.shape)
        if ctx.needs_input_grad[1]:
            to_weight = slope.t() @ x.reshape(-1, x.shape[-1])
        if ctx.needs_input_grad[2]:
            to_bias = slope.sum(0)
        return to_x, to_weight, to_bias


def apply(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """functional.linear, by oneDNN where that gains: x (…, inputs), weight (outputs, inputs) -> (…, outputs)."""
    if gains(x, weight):
        out: Tensor = _Apply.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return out
    return functional.linear(x, weight, bias)


class Linear(nn.Linear):
    """torch's, multiplied by `apply`."""

    def forward(self, x: Tensor) -> Tensor:
        return apply(x, self.weight, self.bias)

    if TYPE_CHECKING:
        __call__ = forward


def linear(inputs: int, outputs: int, blocks: int = 1) -> Linear:
    """A map whose weight may be several maps fused into one; each is initialized as if it stood alone."""
    made = Linear(inputs, outputs)
    for block in made.weight.data.chunk(blocks):
        nn.init.xavier_uniform_(block)
    nn.init.zeros_(made.bias)
    return made


class Readout(nn.Module):
    """From hidden states to logits by a table of embeddings (Press and Wolf, 2017), which stays the model's own: its
    parameters are neither listed nor stored a second time here."""

    def __init__(self, table: nn.Embedding) -> None:
        super().__init__()
        self.tables = (table,)  # in a tuple, where torch does not look for modules

    @property
    def weight(self) -> Tensor:
        return self.tables[0].weight  # (vocab, dim)

    def forward(self, hidden: Tensor) -> Tensor:
        """(…, dim) -> (…, vocab)."""
        return apply(hidden, self.weight)

    if TYPE_CHECKING:
        __call__ = forward
