"""Relevance of heads by layer-wise relevance propagation (Bach et al., 2015; for heads: Voita et al., 2019). The logit of the
most likely token is propagated backward layer by layer, and its sum is conserved:

    R_i = sum_j  x_i w_ij / y_j  R_j      through a linear map y = sum_i x_i w_i + b; the bias is an input of 1
    R_i = the same                        through a norm, with its scale as a constant (Ali et al., 2022)
    R_v = the same                        through attention, with its weights as constants
    R_x = R_f(x)                          through an elementwise f(x): relu, gelu, silu
    R_a = a / (a + b) R_a+b               where two streams are added
    R_a = R_b = R_ab / 2                  where two streams are multiplied

If every operation is replaced by its linear form at the current values, then R = x dy/dx, and one backward pass computes all
relevances. The relevance of a head is |the sum over its context vectors|, here as a share of its layer.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from heedful.errors import ConfigError
from heedful.inspection.measures.importance import context_points
from heedful.nn.hooks import hook
from heedful.nn.model import Model, gradient_context


def layer_norm(x: Tensor, shape: Any, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    size = (x.var(-1, keepdim=True, unbiased=False) + eps).rsqrt().detach()
    y = (x - x.mean(-1, keepdim=True)) * size
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def attention(query: Tensor, key: Tensor, value: Tensor, *rest: Any, **options: Any) -> Tensor:
    return functional.scaled_dot_product_attention(query.detach(), key.detach(), value, *rest, **options)


def softmax(x: Tensor, *rest: Any, **options: Any) -> Tensor:
    return torch.softmax(x, *rest, **options).detach()


def as_scaling(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return f(x) as x times the constant f(x) / x; for functions with f(0) = 0."""

    def scaled(x: Tensor, *rest: Any, **options: Any) -> Tensor:
        fraction = (function(x, *rest, **options) / x).detach()
        return x * fraction.nan_to_num(0.0)

    return scaled


def product(a: Any, b: Any) -> Any:
    if is_stream(a) and is_stream(b):
        return (a * b.detach() + a.detach() * b) / 2
    return a * b


def is_stream(x: Any) -> bool:
    """Return whether relevance is propagated to x: to activations, not to parameters."""
    return isinstance(x, Tensor) and x.requires_grad and not isinstance(x, nn.Parameter)


RULES: dict[Any, Callable[..., Any]] = {
    functional.layer_norm: layer_norm,
    functional.scaled_dot_product_attention: attention,
    **dict.fromkeys((torch.softmax, functional.softmax, Tensor.softmax), softmax),
    **{function: as_scaling(function) for function in (functional.gelu, functional.silu)},  # relu needs no rule
    **dict.fromkeys((torch.mul, Tensor.mul, Tensor.__mul__), product),
}
UNSUPPORTED = {torch.tanh, Tensor.tanh, torch.sigmoid, Tensor.sigmoid, functional.glu}


class NoRule(ConfigError):
    """The model has an operation without a relevance rule."""


class RelevanceRules(TorchFunctionMode):
    """Replaces every operation by its rule."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in UNSUPPORTED:
            raise NoRule(f"relevance is defined for Transformers only; there is no rule for {func.__name__!r}")
        return RULES.get(func, func)(*args, **(kwargs or {}))


def relevances(model: Model, decide: Callable[[], Tensor], real: Tensor) -> dict[str, Tensor]:
    """Return by hook point of the weights the shares of the heads, summed over the predictions, (heads,).

    decide returns logits (rows, time, vocab); real (rows, time): True for target tokens, False for padding."""
    contexts, recorded = context_points(model), dict[str, Tensor]()

    def save(name: str, context: Tensor) -> Tensor:
        recorded[name] = context if context.requires_grad else context.detach().requires_grad_()
        return recorded[name]

    with gradient_context(model), ExitStack() as stack:
        for name in contexts.values():
            stack.enter_context(hook(model, name, save))
        stack.enter_context(RelevanceRules())
        best = decide().amax(-1)  # (rows, time)
    totals: dict[str, Tensor] = {}
    for at in range(real.shape[1]):
        gradients = torch.autograd.grad(best[:, at].sum(), list(recorded.values()), retain_graph=True, materialize_grads=True)
        for (name, context), gradient in zip(recorded.items(), gradients, strict=True):
            share = head_shares((context * gradient).detach(), len(real))[real[:, at]].sum(0)
            totals[name] = totals.get(name, torch.zeros_like(share)) + share
    return {weights: totals[context] for weights, context in contexts.items() if context in totals}


def head_shares(relevance: Tensor, rows: int) -> Tensor:
    """Relevance of context vectors (rows, heads, query, head_dim) or (rows x blocks, …) -> (rows, heads), summing to 1."""
    each = relevance.sum((-2, -1)).view(rows, -1, relevance.shape[1]).sum(1).abs()
    return each / each.sum(-1, keepdim=True).clamp(min=torch.finfo(each.dtype).tiny)
