"""Relevance: how much of a decision passes through each head (layer-wise relevance propagation, Bach et al., 2015; of heads:
Voita et al., 2019). The logit of the likeliest word is handed down layer by layer, and nothing is lost on the way:

    R_i = sum_j  x_i w_ij / y_j  R_j      through a linear map y = sum_i x_i w_i + b; the bias is one more input, of 1
    R_i = the same                        through a norm, which is linear once its size is taken for a number (Ali et al., 2022)
    R_v = the same                        through attention, whose weights are taken for numbers
    R_x = R_f(x)                          through f(x) number by number: relu, gelu, silu
    R_a = a / (a + b) R_a+b               where two streams meet
    R_a = R_b = R_ab / 2                  where two streams multiply

If every step is made linear at the point where it stands, then R = x dy/dx, and one backward pass computes it for all. The
relevance of a head is |the sum over what it found|, here as a share of its layer's.
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
from heedful.inspection.attention_maps import gradient_context
from heedful.inspection.importance import context_points
from heedful.nn.hooks import hook


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
    """f(x) as x times f(x) / x; functions that are 0 at 0."""

    def ruled(x: Tensor, *rest: Any, **options: Any) -> Tensor:
        fraction = (function(x, *rest, **options) / x).detach()
        return x * fraction.nan_to_num(0.0)

    return ruled


def product(a: Any, b: Any) -> Any:
    if is_stream(a) and is_stream(b):
        return (a * b.detach() + a.detach() * b) / 2
    return a * b


def is_stream(x: Any) -> bool:
    """Whether relevance is handed on to it: not to weights."""
    return isinstance(x, Tensor) and x.requires_grad and not isinstance(x, nn.Parameter)


RULES: dict[Any, Callable[..., Any]] = {
    functional.layer_norm: layer_norm,
    functional.scaled_dot_product_attention: attention,
    **dict.fromkeys((torch.softmax, functional.softmax, Tensor.softmax), softmax),
    **{function: as_scaling(function) for function in (functional.gelu, functional.silu)},  # relu is what it is
    **dict.fromkeys((torch.mul, Tensor.mul, Tensor.__mul__), product),
}
UNSUPPORTED = {torch.tanh, Tensor.tanh, torch.sigmoid, Tensor.sigmoid, functional.glu}


class NoRule(ConfigError):
    """A model has layers through which relevance cannot be handed down."""


class RelevanceRules(TorchFunctionMode):
    """Lets every step follow its rule."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in UNSUPPORTED:
            raise NoRule(f"relevance is handed down through Transformers; there is no rule for {func.__name__!r}")
        return RULES.get(func, func)(*args, **(kwargs or {}))


def relevances(model: nn.Module, decide: Callable[[], Tensor], real: Tensor) -> dict[str, Tensor]:
    """By the name of its weights, for each layer: the shares of its heads, added up over the decisions, (heads,).

    decide lets the model say some targets: logits (rows, time, vocab); real (rows, time): which decisions count."""
    taps, recorded = context_points(model), dict[str, Tensor]()

    def hear(name: str, found: Tensor) -> Tensor:
        recorded[name] = found if found.requires_grad else found.detach().requires_grad_()
        return recorded[name]

    with gradient_context(model), ExitStack() as within:
        for name in taps.values():
            within.enter_context(hook(model, name, hear))
        within.enter_context(RelevanceRules())
        best = decide().amax(-1)  # (rows, time)
    totals: dict[str, Tensor] = {}
    for at in range(real.shape[1]):
        slopes = torch.autograd.grad(best[:, at].sum(), list(recorded.values()), retain_graph=True, materialize_grads=True)
        for (name, found), slope in zip(recorded.items(), slopes, strict=True):
            share = head_shares((found * slope).detach(), len(real))[real[:, at]].sum(0)
            totals[name] = totals.get(name, torch.zeros_like(share)) + share
    return {weights: totals[found] for weights, found in taps.items() if found in totals}


def head_shares(relevance: Tensor, rows: int) -> Tensor:
    """Of what each head found, (rows, heads, query, head_dim), or (rows x blocks, …) -> (rows, heads), adding up to 1."""
    each = relevance.sum((-2, -1)).view(rows, -1, relevance.shape[1]).sum(1).abs()
    return each / each.sum(-1, keepdim=True).clamp(min=torch.finfo(each.dtype).tiny)
