"""A linear map that a walk takes at every token: its weight is cast once, and gets its gradient once, from all tokens.

    y_t = x_t W^T + b_t        dx_t = dy_t W        dW = sum_t dy_t^T x_t = [dy_1; dy_2; …]^T [x_1; x_2; …]

By itself autograd multiplies for every token and adds up as many matrices as large as the weight.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from heedful.nn.linear import dtype_of

PendingGrads = list[
    tuple[int, Tensor, Tensor]
]  # of every token that came back: in which pass, x (rows, inputs), dy (rows, outputs)


class Map(Protocol):
    def __call__(self, x: Tensor, added: Tensor) -> Tensor:
        """x (rows, inputs), added (rows, outputs) or (outputs,) -> (rows, outputs)"""


class _Gathered(torch.autograd.Function):
    """Stands before all uses of a weight, and so comes back after all of them."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, noted: PendingGrads) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.noted = noted
        return weight.new_zeros(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor | None, None]:
        now = [
            (x, slope) for number, x, slope in ctx.noted if number == current_pass()
        ]  # an earlier one may not have come here
        ctx.noted.clear()
        if not now:  # none of the tokens mattered
            return None, None
        x, slope = (torch.cat(several) for several in zip(*now, strict=True))
        return slope.t() @ x, None


class _Used(torch.autograd.Function):
    """One token's product."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, added: Tensor, weight: Tensor, gathered: Tensor, noted: PendingGrads) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.noted, ctx.bias = noted, added.dim() == 1
        return torch.addmm(added, x, weight.t())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        (slope,) = slopes
        wants_x, wants_added, _, wants_weight, _ = ctx.needs_input_grad
        if wants_weight:
            ctx.noted.append((current_pass(), x, slope))
        to_added = (slope.sum(0) if ctx.bias else slope) if wants_added else None
        return slope @ weight if wants_x else None, to_added, None, None, None


def current_pass() -> int:
    """A number of its own for every call of backward."""
    return int(torch._C._current_graph_task_id())


def shared_weight(weight: Tensor) -> Map:
    """x W^T + b for weight (outputs, inputs), to be called once for every token of a walk."""
    dtype = dtype_of(weight)
    weight = weight.to(dtype)
    if not (torch.is_grad_enabled() and weight.requires_grad) or torch.compiler.is_compiling():
        across = weight.t()
        return lambda x, added: torch.addmm(added.to(dtype), x.to(dtype), across)
    noted: PendingGrads = []
    gathered = _Gathered.apply(weight, noted)  # type: ignore[no-untyped-call]
    still = weight.detach()

    def multiply(x: Tensor, added: Tensor) -> Tensor:
        out: Tensor = _Used.apply(x.to(dtype), added.to(dtype), still, gathered, noted)  # type: ignore[no-untyped-call]
        return out

    return multiply
