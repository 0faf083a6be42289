"""Hard-Concrete gates: a learned factor in [0, 1] for each head, with a penalty on being nonzero (Louizos et al., 2018; for
heads, Voita et al., 2019).

    out = Concat(g_i head_i) W_O + b
    training    u ~ U(0, 1)    s = sigmoid((log u - log(1 - u) + log_a) / beta)    g = clip(s (zeta - gamma) + gamma, 0, 1)
    otherwise   g = clip(sigmoid(log_a) (zeta - gamma) + gamma, 0, 1)
    penalty     P(g != 0) = sigmoid(log_a - beta log(-gamma / zeta))

A gate does not depend on the input, so it multiplies the columns of W_O that belong to its head: one small product per
batch. Gates are sampled on the device, so a step with gates can be captured in a CUDA graph.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

import torch
from pydantic import model_validator
from torch import Tensor, nn

from heedful.config.base import Config, NonNegativeNumber, PositiveNumber, refuse_unused
from heedful.errors import ConfigError
from heedful.nn.attention import CrossAttention, SelfAttention
from heedful.nn.linear import Linear, apply

GAMMA, ZETA, BETA = -0.1, 1.1, 0.33
EPSILON = 1e-6  # distance of u from 0 and 1
INITIAL_LOG_A = 3.0  # new gates are open, so that the model does not change at first
KINDS = {
    "*encoder.*.self_attention": "encoder",
    "*decoder.*.self_attention": "decoder",
    "*cross_attention": "cross",
    "*layers.*.self_attention": "within",
}


class GatesConfig(Config):
    penalty: NonNegativeNumber = 0.0
    """Penalty of an open head, in nats per token; 0: no gates."""
    kinds: tuple[Literal["encoder", "decoder", "cross", "within"], ...] = ()
    """Kinds of attention with gates; default: all."""
    freeze: tuple[str, ...] = ()
    """Name patterns of parameters that are not trained, such as `decoder*`."""
    speed: PositiveNumber = 100.0
    """Learning rate of the gates relative to that of the weights."""

    @model_validator(mode="after")
    def _fits_together(self) -> GatesConfig:
        if not self.penalty:
            refuse_unused(self, dict.fromkeys(("kinds", "freeze", "speed"), "training.gates.penalty is 0"))
        return self


def sample_gate(log_a: Tensor) -> Tensor:
    """Sample gates for one batch: (heads,) -> (heads,)."""
    u = torch.empty_like(log_a).uniform_(EPSILON, 1 - EPSILON)
    return stretch(torch.sigmoid((torch.logit(u) + log_a) / BETA))


def inference_gate(log_a: Tensor) -> Tensor:
    """Deterministic gates for inference: (heads,) -> (heads,)."""
    return stretch(torch.sigmoid(log_a))


def stretch(s: Tensor) -> Tensor:
    return (s * (ZETA - GAMMA) + GAMMA).clamp(0, 1)


def open_probability(log_a: Tensor) -> Tensor:
    """P(g != 0): (heads,) -> (heads,)."""
    return torch.sigmoid(log_a - BETA * math.log(-GAMMA / ZETA))


class GatedOutput(nn.Module):
    """W_O with a gate for each head; replaces a plain output projection and shares its weights."""

    def __init__(self, plain: Linear, heads: int) -> None:
        super().__init__()
        self.weight, self.bias = plain.weight, plain.bias  # (dim, heads x head_dim), (dim,)
        self.log_a = nn.Parameter(torch.full((heads,), INITIAL_LOG_A))

    def forward(self, x: Tensor) -> Tensor:
        """(…, heads x head_dim) -> (…, dim)."""
        gates = sample_gate(self.log_a) if self.training else inference_gate(self.log_a)  # (heads,)
        columns = gates.repeat_interleave(self.weight.shape[1] // len(gates))  # (heads x head_dim,)
        return apply(x, self.weight * columns, self.bias)

    if TYPE_CHECKING:
        __call__ = forward


def kind_of(name: str) -> str | None:
    """The kind of attention of a module, by its name; None: not attention."""
    return next((kind for pattern, kind in KINDS.items() if fnmatchcase(name, pattern)), None)


def attentions(model: nn.Module) -> dict[str, SelfAttention | CrossAttention]:
    """Attention modules of a known kind by name, in the order of the model."""
    modules = ((name, module) for name, module in model.named_modules() if isinstance(module, SelfAttention | CrossAttention))
    return {name: module for name, module in modules if kind_of(name) is not None}


def gates(model: nn.Module) -> dict[str, Tensor]:
    """log_a (heads,) of every attention module with gates, by name."""
    return {name: module.out.log_a for name, module in attentions(model).items() if isinstance(module.out, GatedOutput)}


def add_gates(model: nn.Module, kinds: Sequence[str] = ()) -> None:
    """Add a gate to each head of these kinds; none given: to all heads."""
    modules = attentions(model)
    for kind in kinds or ("heads",):
        if not any(kind in ("heads", kind_of(name)) for name in modules):
            known = ", ".join(dict.fromkeys(str(kind_of(name)) for name in modules))
            missing = "no attention heads" if kind == "heads" else f"no attention heads of kind {kind!r}"
            raise ConfigError(f"training.gates: the model has {missing}; available kinds: {known or 'none'}")
    for name, module in modules.items():
        if not kinds or kind_of(name) in kinds:
            module.out = GatedOutput(module.out, module.heads)  # type: ignore[assignment]
