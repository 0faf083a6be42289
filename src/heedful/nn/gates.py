"""Hard-Concrete gates: a number in [0, 1] for each head, learned with a price on not being 0 (Louizos et al., 2018; of heads,
Voita et al., 2019).

    out = Concat(g_i head_i) W_O + b
    training    u ~ U(0, 1)    s = sigmoid((log u - log(1 - u) + log_a) / beta)    g = clip(s (zeta - gamma) + gamma, 0, 1)
    otherwise   g = clip(sigmoid(log_a) (zeta - gamma) + gamma, 0, 1)
    price       P(g != 0) = sigmoid(log_a - beta log(-gamma / zeta))

A gate knows nothing of the input, so it may as well multiply the columns of W_O that read its head: one small product a
batch. The draw is made on the device, so a step with gates can be captured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

import torch
from pydantic import model_validator
from torch import Tensor, nn

from heedful.errors import ConfigError
from heedful.nn.attention import CrossAttention, SelfAttention
from heedful.nn.linear import Linear, apply
from heedful.schema import Config, NonNegativeNumber, PositiveNumber, refuse_unused

GAMMA, ZETA, BETA = -0.1, 1.1, 0.33
EPSILON = 1e-6  # u keeps so far from 0 and 1
BEGIN = 3.0  # log_a of a new gate, which is open: the model is at first what it was
KINDS = {
    "*encoder.*.self_attention": "encoder",
    "*decoder.*.self_attention": "decoder",
    "*cross_attention": "cross",
    "*layers.*.self_attention": "within",
}


class GatesConfig(Config):
    penalty: NonNegativeNumber = 0.0
    """Price of an open head, in nats per token; 0: no gates."""
    kinds: tuple[Literal["encoder", "decoder", "cross", "within"], ...] = ()
    """Attention that has gates; none named: all."""
    freeze: tuple[str, ...] = ()
    """Patterns of parameters that are not trained, such as `decoder*`."""
    speed: PositiveNumber = 100.0
    """Learning rate of the gates relative to that of the weights."""

    @model_validator(mode="after")
    def _fits_together(self) -> GatesConfig:
        if not self.penalty:
            refuse_unused(self, dict.fromkeys(("kinds", "freeze", "speed"), "training.gates.penalty is 0"))
        return self


def sample_gate(log_a: Tensor) -> Tensor:
    """A gate's value for one batch."""
    u = torch.empty_like(log_a).uniform_(EPSILON, 1 - EPSILON)
    return stretch(torch.sigmoid((torch.logit(u) + log_a) / BETA))


def inference_gate(log_a: Tensor) -> Tensor:
    """A gate's value when nothing is learned any more."""
    return stretch(torch.sigmoid(log_a))


def stretch(s: Tensor) -> Tensor:
    return (s * (ZETA - GAMMA) + GAMMA).clamp(0, 1)


def open_probability(log_a: Tensor) -> Tensor:
    """P(g != 0)."""
    return torch.sigmoid(log_a - BETA * math.log(-GAMMA / ZETA))


class GatedOutput(nn.Module):
    """W_O with a gate for each head that it joins; takes the place, and the weights, of one without."""

    def __init__(self, plain: Linear, heads: int) -> None:
        super().__init__()
        self.weight, self.bias = plain.weight, plain.bias  # (dim, heads x head_dim), (dim,)
        self.log_a = nn.Parameter(torch.full((heads,), BEGIN))

    def forward(self, x: Tensor) -> Tensor:
        """(…, heads x head_dim) -> (…, dim)."""
        gates = sample_gate(self.log_a) if self.training else inference_gate(self.log_a)  # (heads,)
        columns = gates.repeat_interleave(self.weight.shape[1] // len(gates))  # (heads x head_dim,)
        return apply(x, self.weight * columns, self.bias)

    if TYPE_CHECKING:
        __call__ = forward


def kind_of(name: str) -> str | None:
    """The kind of heads that the attention of this name has."""
    return next((kind for pattern, kind in KINDS.items() if fnmatchcase(name, pattern)), None)


def attentions(model: nn.Module) -> dict[str, SelfAttention | CrossAttention]:
    """Whatever has heads of a known kind, by name, in the order of the model."""
    found = ((name, one) for name, one in model.named_modules() if isinstance(one, SelfAttention | CrossAttention))
    return {name: one for name, one in found if kind_of(name) is not None}


def gates(model: nn.Module) -> dict[str, Tensor]:
    """log_a (heads,) of every attention that has gates, by its name."""
    return {name: one.out.log_a for name, one in attentions(model).items() if isinstance(one.out, GatedOutput)}


def add_gates(model: nn.Module, kinds: Sequence[str] = ()) -> None:
    """Give the heads of these kinds, or all, a gate each."""
    there = attentions(model)
    for kind in kinds or ("heads",):
        if not any(kind in ("heads", kind_of(name)) for name in there):
            known = ", ".join(dict.fromkeys(str(kind_of(name)) for name in there))
            what = "no heads" if kind == "heads" else f"no heads of kind {kind!r}"
            raise ConfigError(f"training.gates: the model has {what}; it has those of: {known or 'none'}")
    for name, one in there.items():
        if not kinds or kind_of(name) in kinds:
            one.out = GatedOutput(one.out, one.heads)  # type: ignore[assignment]
