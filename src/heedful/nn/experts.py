"""Mixture of experts: many feed-forward layers, of which each token is sent to a few
("Outrageously Large Neural Networks", Shazeer et al., 2017).

    h_i = x . g_i + noise softplus(x . n_i)              noise ~ N(0, 1), in training only
    G = softmax(h_i of the k largest), 0 for the others     k > 1: a single gate would always be 1 and learn nothing
    y = sum_i G_i E_i(x)                                  E_i(x) = activation(x A_i) B_i

Nothing makes a gate use all experts: the better one is chosen more often and so becomes better still. Two losses do, each
the squared coefficient of variation over the experts of something that should be the same for all:

    importance_i = sum over tokens of G_i
    load_i       = sum over tokens of P(i is chosen, were its noise drawn anew) = Phi((x . g_i - other_i) / softplus(x . n_i))

where other_i is the k-th largest h of the other experts. Tokens are sorted by expert, and every expert multiplies its own:
the work for a token does not depend on how many experts there are (on a GPU where it has a kernel for that, see `send`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from heedful.nn.blocks import ACTIVATIONS
from heedful.nn.dropout import Dropout
from heedful.nn.hooks import HookPoint
from heedful.nn.linear import dtype_of
from heedful.nn.losses import Loss
from heedful.schema import Problem

ALIGNED = 8  # sizes must be multiples of this: the grouped product reads 16 bytes at a time


class RoutingRecord(NamedTuple):
    """Where the layers of a stack note what they want minimized."""

    real: Tensor | None  # (rows, time): which tokens count; None: all
    wants: list[Tensor]  # (2,) each: of importance and of load


class Routing(NamedTuple):
    """What a gate decided for each token."""

    weight: Tensor  # (tokens, used), adding up to 1
    expert: Tensor  # (tokens, used)


class Experts(nn.Module):
    def __init__(self, dim: int, hidden: int, count: int, used: int, *, activation: str = "relu", dropout: float = 0.0) -> None:
        super().__init__()
        assert 1 < used < count, f"{used} of {count} experts cannot be chosen"
        assert dim % ALIGNED == hidden % ALIGNED == 0, f"{dim} and {hidden} must be multiples of {ALIGNED}"
        self.count, self.used = count, used
        self.activation = ACTIVATIONS[activation]
        self.choose = nn.Parameter(torch.zeros(2 * count, dim))  # g, then n; zeros: all experts are chosen alike
        self.rise = nn.Parameter(torch.empty(count, dim, hidden))
        self.fall = nn.Parameter(torch.empty(count, hidden, dim))
        for each in (*self.rise.data, *self.fall.data):
            nn.init.xavier_uniform_(each)
        self.dropout = Dropout(dropout)
        self.gates = HookPoint()  # G: (tokens, experts)

    def forward(self, x: Tensor, ledger: RoutingRecord | None = None) -> Tensor:
        """(rows, time, dim), or any shape (…, dim) without a ledger of real tokens -> as x."""
        tokens = x.reshape(-1, x.shape[-1])  # (tokens, dim)
        choice = self.gate(tokens, ledger)
        if self.gates.wanted:
            heard = self.gates(dense_gates(choice, self.count))
            choice = Routing(*heard.topk(self.used)) if self.gates.changes else choice
        return self.send(tokens, choice).view_as(x)

    def gate(self, tokens: Tensor, ledger: RoutingRecord | None) -> Routing:
        with exactly(tokens):
            clean, raw = functional.linear(tokens.float(), self.choose.float()).chunk(2, dim=-1)  # (tokens, experts)
            spreads = functional.softplus(raw)
            noisy = clean + torch.randn_like(clean) * spreads if self.training else clean
            largest, expert = noisy.topk(self.used)
            choice = Routing(largest.softmax(-1), expert)
            if self.training and ledger is not None:
                both = torch.stack((dense_gates(choice, self.count), selection_probabilities(clean, noisy, spreads, self.used)))
                if ledger.real is not None:
                    both = both * ledger.real.reshape(-1, 1)  # (2, tokens, experts)
                ledger.wants.append(squared_variation(both.sum(1)))
        return choice

    def send(self, tokens: Tensor, choice: Routing) -> Tensor:
        """(tokens, dim) -> the chosen experts' answers in the proportion of their weights (tokens, dim)."""
        dtype = dtype_of(tokens)
        if not has_grouped_products(tokens.device, dtype):
            return self.send_to_all(tokens.to(dtype), choice)
        sorted_experts, order = choice.expert.flatten().sort(stable=True)  # (tokens x used,)
        experts = torch.arange(self.count, device=tokens.device)
        ends = (sorted_experts <= experts[:, None]).sum(-1, dtype=torch.int32)  # where each expert's tokens end
        given = tokens.to(dtype).index_select(0, order // self.used)  # (tokens x used, dim)
        risen = self.dropout(self.activation(functional.grouped_mm(given, self.rise.to(dtype), offs=ends)))
        answers = functional.grouped_mm(risen, self.fall.to(dtype), offs=ends)
        back = answers.index_select(0, order.argsort()).view(-1, self.used, tokens.shape[-1])  # (tokens, used, dim)
        return (back * choice.weight.to(dtype)[..., None]).sum(1)

    def send_to_all(self, tokens: Tensor, choice: Routing) -> Tensor:
        """As `send`: all experts answer all tokens, and the chosen ones are heard. More work, but nobody has to wait for
        how many tokens each expert gets, so that a GPU can record it."""
        dtype = tokens.dtype
        risen = self.dropout(self.activation(tokens @ self.rise.to(dtype)))  # (experts, tokens, hidden)
        answers = risen @ self.fall.to(dtype)  # (experts, tokens, dim)
        heard = answers[choice.expert, torch.arange(tokens.shape[0], device=tokens.device)[:, None]]  # (tokens, used, dim)
        return (heard * choice.weight.to(dtype)[..., None]).sum(1)

    if TYPE_CHECKING:
        __call__ = forward


def has_grouped_products(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether torch multiplies group by group in one kernel. On a CPU it takes turns, which costs nothing there; on a GPU
    without such a kernel it asks the host how large the groups are."""
    if device.type != "cuda":
        return not torch.compiler.is_exporting()  # other runtimes have none
    return dtype is torch.bfloat16 and torch.cuda.get_device_capability(device)[0] in (9, 10)


class ExpertLayer(nn.Module):
    """Experts between the layers of a stack, the n-th behind the n-th layer: to the next one goes  x + experts(x)."""

    def __init__(self, experts: Iterable[Experts]) -> None:
        super().__init__()
        self.experts = nn.ModuleList(experts)

    def ledger(self, real: Tensor | None) -> RoutingRecord | None:
        """Of experts that are being trained."""
        return RoutingRecord(real, []) if self.training and len(self.experts) else None

    def forward(self, at: int, x: Tensor, ledger: RoutingRecord | None) -> Tensor:
        """What layer `at` says, (rows, time, dim) -> as x; behind the last of the experts, x itself."""
        return x + self.experts[at](x, ledger) if at < len(self.experts) else x

    if TYPE_CHECKING:
        __call__ = forward


def exactly(x: Tensor) -> AbstractContextManager[object]:
    """No mixed precision; a tensor without contents knows none."""
    return nullcontext() if x.is_meta else torch.autocast(x.device.type, enabled=False)


def dense_gates(choice: Routing, count: int) -> Tensor:
    """The weights of all experts, zeros for those not chosen: (tokens, experts)."""
    return choice.weight.new_zeros(len(choice.weight), count).scatter(1, choice.expert, choice.weight)


def selection_probabilities(clean: Tensor, noisy: Tensor, spreads: Tensor, used: int) -> Tensor:
    """How likely each expert is to be chosen, were its noise drawn anew and that of the others not: all (tokens, experts)."""
    *_, last, next_one = torch.split(noisy.topk(used + 1).values, 1, dim=-1)  # (tokens, 1) each
    other = torch.where(noisy >= last, next_one, last)
    likely: Tensor = torch.special.ndtr((clean - other) / spreads)
    return likely


def squared_variation(amounts: Tensor) -> Tensor:
    """The squared coefficient of variation, variance / mean^2, 0 when all are alike: (…, experts) -> (…)."""
    return amounts.var(-1, correction=0) / amounts.mean(-1).square().clamp(min=1e-10)


def usage(gates: Tensor) -> Tensor:
    """What the tap `gates` gave, (tokens, experts) -> the share of all choices that fell on each expert (experts,)."""
    chosen = (gates > 0).float()
    return chosen.sum(0) / chosen.sum()


def misfits(sizes: Mapping[str, int], count: int, used: int) -> list[Problem]:
    """Why so many experts cannot be had or used; sizes: by the names of a config's fields."""
    wrong = [
        Problem(name, f"given {size}, expected a multiple of {ALIGNED} where there are experts")
        for name, size in sizes.items()
        if size % ALIGNED
    ]
    if not 1 < used < count:
        expected = f"expected at least 2, so that the gate learns, and fewer than model.experts, which is {count}"
        wrong.append(Problem("experts_used", f"given {used}, {expected}"))
    return wrong


def balance(wants: Tensor, weight: float) -> dict[str, Loss]:
    """The sum (2,) of what layers noted, as losses of a step."""
    one = torch.ones((), device=wants.device)
    importance, load = weight * wants
    return {"expert_importance": Loss(importance, one), "expert_load": Loss(load, one)}
