"""Linear layers with Xavier-uniform weights (Glorot and Bengio, 2010) and zero biases.

    y = x W^T + b        dx = dy W        dW = dy^T x

On a CPU, oneDNN multiplies large matrices faster than torch's default; the product with the transposed left operand, dW, is
as fast without it. For small matrices the overhead of oneDNN is larger than its gain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from heedful.nn.few_rows import few_rows_linear, fits_few_rows
from heedful.nn.torch_private import onednn_linear

ONEDNN = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
LARGE = 2**24  # multiplications in a product from which oneDNN was measured to be faster


def dtype_of(x: Tensor) -> torch.dtype:
    """The dtype of matrix products with x: autocast's, else its own."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if not x.is_meta and torch.is_autocast_enabled(device) else x.dtype


def onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x (rows, inputs), weight (outputs, inputs) of any strides, or packed -> (rows, outputs). Has no gradient."""
    return onednn_linear(x, weight, bias)


def onednn_is_faster(x: Tensor, weight: Tensor) -> bool:
    """Whether x W^T is faster with oneDNN."""
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
    return onednn(x, weight) if onednn_is_faster(x, weight) else x @ weight.t()


class _Apply(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        out = onednn(x.reshape(-1, x.shape[-1]), weight, bias)
        return out.view(*x.shape[:-1], out.shape[-1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        grad_out = gradients[0].reshape(-1, weight.shape[0])  # (rows, outputs)
        grad_x = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:  # second derivatives require a differentiable product
            grad_x = (grad_out @ weight if torch.is_grad_enabled() else product(grad_out, weight.t())).view(x.shape)
        if ctx.needs_input_grad[1]:
            grad_weight = grad_out.t() @ x.reshape(-1, x.shape[-1])
        if ctx.needs_input_grad[2]:
            grad_bias = grad_out.sum(0)
        return grad_x, grad_weight, grad_bias


def apply(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """functional.linear, with oneDNN where that is faster: x (…, inputs), weight (outputs, inputs) -> (…, outputs)."""
    if onednn_is_faster(x, weight):
        out: Tensor = _Apply.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return out
    return functional.linear(x, weight, bias)


class Linear(nn.Linear):
    """nn.Linear computed by `apply`."""

    def forward(self, x: Tensor) -> Tensor:
        return apply(x, self.weight, self.bias)

    if TYPE_CHECKING:
        __call__ = forward


def linear(inputs: int, outputs: int, blocks: int = 1) -> Linear:
    """A linear layer whose weight may fuse several blocks, each initialized separately."""
    layer = Linear(inputs, outputs)
    for block in layer.weight.data.chunk(blocks):
        nn.init.xavier_uniform_(block)
    nn.init.zeros_(layer.bias)
    return layer


class Readout(nn.Module):
    """Hidden states to logits by an embedding matrix (Press and Wolf, 2017). The model registers the embedding; here it is
    not registered again, so its parameters are neither listed nor saved twice."""

    def __init__(self, table: nn.Embedding) -> None:
        super().__init__()
        self.tables = (table,)  # in a tuple, so that torch does not register it as a submodule

    @property
    def weight(self) -> Tensor:
        return self.tables[0].weight  # (vocab, dim)

    def forward(self, hidden: Tensor) -> Tensor:
        """(…, dim) -> (…, vocab)."""
        if fits_few_rows(hidden, self.weight):
            return few_rows_linear(hidden, self.weight)  # for any vocabulary size; others need a multiple of 8 to be fast
        return apply(hidden, self.weight)

    if TYPE_CHECKING:
        __call__ = forward
