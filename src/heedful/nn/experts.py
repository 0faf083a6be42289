"""Mixture of experts: many feed-forward layers, of which each token uses a few
("Outrageously Large Neural Networks", Shazeer et al., 2017).

    h_i = x . g_i + noise softplus(x . n_i)              noise ~ N(0, 1), in training only
    G = softmax(h_i of the k largest), 0 for the others     k > 1: a single gate would always be 1 and have no gradient
    y = sum_i G_i E_i(x)                                  E_i(x) = activation(x A_i) B_i

Without further losses the router collapses: an expert that is chosen more often improves and is chosen even more. Two losses
balance the experts, each the squared coefficient of variation of a quantity that should be equal for all of them:

    importance_i = sum over tokens of G_i
    load_i       = sum over tokens of P(i is chosen if its noise is resampled) = Phi((x . g_i - other_i) / softplus(x . n_i))

where other_i is the k-th largest h of the other experts. Tokens are sorted by expert and multiplied in groups, so the work
per token does not depend on the number of experts (on a GPU only where it has a kernel for that, see `dispatch`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from heedful.config.base import Problem
from heedful.nn.blocks import ACTIVATIONS
from heedful.nn.dropout import Dropout
from heedful.nn.hooks import HookPoint
from heedful.nn.linear import dtype_of
from heedful.nn.losses import Loss

ALIGNMENT = 8  # sizes must be multiples of this: the grouped matrix product loads 16 bytes at a time


class RoutingRecord(NamedTuple):
    """The balancing losses of all layers of a stack, collected in a forward pass."""

    real: Tensor | None  # (rows, time): padding mask; None: no padding
    losses: list[Tensor]  # (2,) for each layer: importance and load


class Routing(NamedTuple):
    """The chosen experts of each token."""

    weight: Tensor  # (tokens, used), sums to 1
    expert: Tensor  # (tokens, used)


class Experts(nn.Module):
    def __init__(self, dim: int, hidden: int, count: int, used: int, *, activation: str = "relu", dropout: float = 0.0) -> None:
        super().__init__()
        assert 1 < used < count, f"{used} of {count} experts cannot be chosen"
        assert dim % ALIGNMENT == hidden % ALIGNMENT == 0, f"{dim} and {hidden} must be multiples of {ALIGNMENT}"
        self.count, self.used = count, used
        self.activation = ACTIVATIONS[activation]
        self.choose = nn.Parameter(torch.zeros(2 * count, dim))  # g, then n; with zeros all experts are equally likely
        self.rise = nn.Parameter(torch.empty(count, dim, hidden))
        self.fall = nn.Parameter(torch.empty(count, hidden, dim))
        for each in (*self.rise.data, *self.fall.data):
            nn.init.xavier_uniform_(each)
        self.dropout = Dropout(dropout)
        self.gates = HookPoint()  # G: (tokens, experts)

    def forward(self, x: Tensor, record: RoutingRecord | None = None) -> Tensor:
        """x (rows, time, dim), or any shape (…, dim) without a padding mask in the record -> as x."""
        tokens = x.reshape(-1, x.shape[-1])  # (tokens, dim)
        routing = self.gate(tokens, record)
        if self.gates.has_hooks:
            gates = self.gates(dense_gates(routing, self.count))
            routing = Routing(*gates.topk(self.used)) if self.gates.changes else routing
        return self.dispatch(tokens, routing).view_as(x)

    def gate(self, tokens: Tensor, record: RoutingRecord | None) -> Routing:
        with without_autocast(tokens):
            clean, raw = functional.linear(tokens.float(), self.choose.float()).chunk(2, dim=-1)  # (tokens, experts)
            noise_std = functional.softplus(raw)
            noisy = clean + torch.randn_like(clean) * noise_std if self.training else clean
            largest, expert = noisy.topk(self.used)
            routing = Routing(largest.softmax(-1), expert)
            if self.training and record is not None:
                both = torch.stack(
                    (dense_gates(routing, self.count), selection_probabilities(clean, noisy, noise_std, self.used))
                )
                if record.real is not None:
                    both = both * record.real.reshape(-1, 1)  # (2, tokens, experts)
                record.losses.append(squared_variation(both.sum(1)))
        return routing

    def dispatch(self, tokens: Tensor, routing: Routing) -> Tensor:
        """(tokens, dim) -> the weighted sum of the chosen experts' outputs (tokens, dim)."""
        dtype = dtype_of(tokens)
        if not has_grouped_products(tokens.device, dtype):
            return self.dispatch_to_all(tokens.to(dtype), routing)
        sorted_experts, order = routing.expert.flatten().sort(stable=True)  # (tokens x used,)
        experts = torch.arange(self.count, device=tokens.device)
        ends = (sorted_experts <= experts[:, None]).sum(-1, dtype=torch.int32)  # the end of each expert's tokens
        inputs = tokens.to(dtype).index_select(0, order // self.used)  # (tokens x used, dim)
        hidden = self.dropout(self.activation(functional.grouped_mm(inputs, self.rise.to(dtype), offs=ends)))
        sorted_outputs = functional.grouped_mm(hidden, self.fall.to(dtype), offs=ends)
        outputs = sorted_outputs.index_select(0, order.argsort()).view(-1, self.used, tokens.shape[-1])  # (tokens, used, dim)
        return (outputs * routing.weight.to(dtype)[..., None]).sum(1)

    def dispatch_to_all(self, tokens: Tensor, routing: Routing) -> Tensor:
        """As `dispatch`, with all experts applied to all tokens. It is more work, but needs no group sizes on the host, so
        it can be captured in a CUDA graph."""
        dtype = tokens.dtype
        hidden = self.dropout(self.activation(tokens @ self.rise.to(dtype)))  # (experts, tokens, hidden)
        outputs = hidden @ self.fall.to(dtype)  # (experts, tokens, dim)
        chosen = outputs[routing.expert, torch.arange(tokens.shape[0], device=tokens.device)[:, None]]  # (tokens, used, dim)
        return (chosen * routing.weight.to(dtype)[..., None]).sum(1)

    if TYPE_CHECKING:
        __call__ = forward


def has_grouped_products(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether torch multiplies groups without synchronizing with the host. On a CPU it loops over the groups, which is as
    fast; on a GPU without a grouped kernel it reads the group sizes back to the host."""
    if device.type != "cuda":
        return not torch.compiler.is_exporting()  # other runtimes have no grouped product
    return dtype is torch.bfloat16 and torch.cuda.get_device_capability(device)[0] in (9, 10)


class ExpertLayer(nn.Module):
    """Experts between the layers of a stack: the output x of layer n becomes  x + experts_n(x)."""

    def __init__(self, experts: Iterable[Experts]) -> None:
        super().__init__()
        self.experts = nn.ModuleList(experts)

    def routing_record(self, real: Tensor | None) -> RoutingRecord | None:
        """A new record in training, if there are experts."""
        return RoutingRecord(real, []) if self.training and len(self.experts) else None

    def forward(self, at: int, x: Tensor, record: RoutingRecord | None) -> Tensor:
        """x: output of layer `at` (rows, time, dim) -> as x; unchanged after the last of the experts."""
        return x + self.experts[at](x, record) if at < len(self.experts) else x

    if TYPE_CHECKING:
        __call__ = forward


def without_autocast(x: Tensor) -> AbstractContextManager[object]:
    """A context without mixed precision; autocast does not support the "meta" device."""
    return nullcontext() if x.is_meta else torch.autocast(x.device.type, enabled=False)


def dense_gates(routing: Routing, count: int) -> Tensor:
    """Routing weights of all experts, zero for those not chosen: (tokens, experts)."""
    return routing.weight.new_zeros(len(routing.weight), count).scatter(1, routing.expert, routing.weight)


def selection_probabilities(clean: Tensor, noisy: Tensor, noise_std: Tensor, used: int) -> Tensor:
    """P(expert is chosen) if its noise is resampled and that of the others kept: all (tokens, experts)."""
    *_, last, next_one = torch.split(noisy.topk(used + 1).values, 1, dim=-1)  # (tokens, 1) each
    other = torch.where(noisy >= last, next_one, last)
    probabilities: Tensor = torch.special.ndtr((clean - other) / noise_std)
    return probabilities


def squared_variation(amounts: Tensor) -> Tensor:
    """Squared coefficient of variation, variance / mean^2: (…, experts) -> (…)."""
    return amounts.var(-1, correction=0) / amounts.mean(-1).square().clamp(min=1e-10)


def expert_utilization(gates: Tensor) -> Tensor:
    """gates (tokens, experts), as recorded at the hook point -> each expert's share of all choices (experts,)."""
    chosen = (gates > 0).float()
    return chosen.sum(0) / chosen.sum()


def size_problems(sizes: Mapping[str, int], count: int, used: int) -> list[Problem]:
    """Problems with the sizes and numbers of experts; sizes: by config field."""
    wrong = [
        Problem(name, f"given {size}, expected a multiple of {ALIGNMENT} in a model with experts")
        for name, size in sizes.items()
        if size % ALIGNMENT
    ]
    if not 1 < used < count:
        expected = f"expected at least 2, so that gates have a gradient, and fewer than model.experts, which is {count}"
        wrong.append(Problem("experts_used", f"given {used}, {expected}"))
    return wrong


def balance_losses(losses: Tensor, weight: float) -> dict[str, Loss]:
    """losses (2,): sums of importance and load over layers -> auxiliary losses of a step."""
    one = torch.ones((), device=losses.device)
    importance, load = weight * losses
    return {"expert_importance": Loss(importance, one), "expert_load": Loss(load, one)}
