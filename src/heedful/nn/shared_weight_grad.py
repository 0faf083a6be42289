"""A linear layer applied at every step of a recurrence: its weight is cast once, and its gradient is computed once for all
steps.

    y_t = x_t W^T + b_t        dx_t = dy_t W        dW = sum_t dy_t^T x_t = [dy_1; dy_2; …]^T [x_1; x_2; …]

Plain autograd computes and adds a matrix of the weight's size for every step.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from heedful.nn.linear import dtype_of
from heedful.nn.torch_private import current_backward_id

PendingGrads = list[tuple[int, Tensor, Tensor]]  # of each step: id of the backward pass, x (rows, inputs), dy (rows, outputs)


class Multiply(Protocol):
    def __call__(self, x: Tensor, bias: Tensor) -> Tensor:
        """x (rows, inputs), bias (rows, outputs) or (outputs,) -> x W^T + bias (rows, outputs)."""


class _WeightGrad(torch.autograd.Function):
    """Precedes all steps in the graph, so that its backward pass runs after theirs and computes the weight's gradient."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, pending: PendingGrads) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.pending = pending
        return weight.new_zeros(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor | None, None]:
        # an earlier backward pass may have stopped before this node
        pairs = [(x, grad) for backward_id, x, grad in ctx.pending if backward_id == current_backward_id()]
        ctx.pending.clear()
        if not pairs:  # the loss depends on none of the steps
            return None, None
        x, grad = (torch.cat(tensors) for tensors in zip(*pairs, strict=True))
        return grad.t() @ x, None


class _StepProduct(torch.autograd.Function):
    """The product of one step."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor, weight: Tensor, weight_grad: Tensor, pending: PendingGrads) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.pending, ctx.sums_bias = pending, bias.dim() == 1
        return torch.addmm(bias, x, weight.t())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        (grad,) = grads
        needs_x, needs_bias, _, needs_weight, _ = ctx.needs_input_grad
        if needs_weight:
            ctx.pending.append((current_backward_id(), x, grad))
        grad_bias = (grad.sum(0) if ctx.sums_bias else grad) if needs_bias else None
        return grad @ weight if needs_x else None, grad_bias, None, None, None


def shared_weight(weight: Tensor) -> Multiply:
    """Return x, b -> x W^T + b for weight (outputs, inputs), to be called at every step."""
    dtype = dtype_of(weight)
    weight = weight.to(dtype)
    if not (torch.is_grad_enabled() and weight.requires_grad) or torch.compiler.is_compiling():
        transposed = weight.t()
        return lambda x, bias: torch.addmm(bias.to(dtype), x.to(dtype), transposed)
    pending: PendingGrads = []
    weight_grad = _WeightGrad.apply(weight, pending)  # type: ignore[no-untyped-call]
    detached = weight.detach()

    def multiply(x: Tensor, bias: Tensor) -> Tensor:
        out: Tensor = _StepProduct.apply(x.to(dtype), bias.to(dtype), detached, weight_grad, pending)  # type: ignore[no-untyped-call]
        return out

    return multiply
