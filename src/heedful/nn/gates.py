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
from typing import TYPE_CHECKING, Any, Literal

import torch
from pydantic import model_validator
from torch import Tensor, nn

from heedful.config.base import Config, NonNegativeNumber, PositiveNumber, refuse_unused
from heedful.errors import ConfigError
from heedful.nn.attention import CrossAttention, SelfAttention
from heedful.nn.linear import Linear, apply
from heedful.nn.model import AttentionLayer, Model

GAMMA, ZETA, BETA = -0.1, 1.1, 0.33
EPSILON = 1e-6  # distance of u from 0 and 1
INITIAL_LOG_A = 3.0  # new gates are open, so that the model does not change at first


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


def prunable_attentions(model: Model) -> dict[str, AttentionLayer]:
    """Attention with an output projection of its own, by name, in the order of the model: its heads can be removed."""
    return {
        one.name: one
        for one in model.attentions()
        if isinstance(one.module, SelfAttention | CrossAttention) and one.core is one.module.core
    }


def gates(model: Model) -> dict[str, Tensor]:
    """log_a (heads,) of every attention with gates, by name."""
    return {name: one.out.log_a for name, one in prunable_attentions(model).items() if isinstance(one.out, GatedOutput)}


def add_gates(model: Model, kinds: Sequence[str] = ()) -> None:
    """Add a gate to each head of these kinds; none given: to all heads."""
    prunable = prunable_attentions(model)
    known = dict.fromkeys(one.kind.name for one in prunable.values())
    for kind in kinds or ("heads",):
        if not known or kind not in ("heads", *known):
            missing = "no attention heads" if kind == "heads" else f"no attention heads of kind {kind!r}"
            raise ConfigError(f"training.gates: the model has {missing}; available kinds: {', '.join(known) or 'none'}")
    for one in prunable.values():
        if not kinds or one.kind.name in kinds:
            module: Any = one.module
            module.out = GatedOutput(module.out, one.heads)
