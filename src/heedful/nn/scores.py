"""A look at what was read, by a score that need not be a scaled dot product. q: the state that looks, k: what was read.

    dot         q . k
    general     q . W k                          Luong et al., 2015
    concat      v . tanh(W q + U k + b)          Bahdanau et al., 2015; Luong's v . tanh(W [q; k]) cut in two
    location    (W q)_s                          the place alone decides: Luong et al.

    weights = softmax over the places s that may be seen;    found = sum_s weights_s value_s

A scope narrows what may be seen to places at most D from a center p (Luong et al.); S: how much was read:

    local-m     p = t, the number of the token
    local-p     p = S sigmoid(v . tanh(W q)), and the weights are multiplied by exp(-(s - p)^2 / (2 (D/2)^2))

What depends on the source alone is computed once for each source.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from heedful.nn.decoder_state import Tree
from heedful.nn.hooks import HookPoint
from heedful.nn.linear import Linear, linear


def unbiased(inputs: int, outputs: int) -> Linear:
    made = Linear(inputs, outputs, bias=False)
    nn.init.xavier_uniform_(made.weight)
    return made


class Score(nn.Module):
    """How well queries (sources, n, query_dim) fit keys (sources, S, …): (sources, n, S)."""

    def remember(self, source: Tensor) -> Tensor:
        """What was read (sources, S, dim) -> keys."""
        return source

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        raise NotImplementedError

    if TYPE_CHECKING:
        __call__ = forward


class Dot(Score):
    def __init__(self, query_dim: int, key_dim: int) -> None:
        assert query_dim == key_dim, f"a dot product needs equal sizes, but they are {query_dim} and {key_dim}"
        super().__init__()

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return query @ keys.transpose(1, 2)


class General(Score):
    def __init__(self, query_dim: int, key_dim: int) -> None:
        super().__init__()
        self.key = unbiased(key_dim, query_dim)

    def remember(self, source: Tensor) -> Tensor:
        return self.key(source)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return query @ keys.transpose(1, 2)


class Additive(Score):
    """One hidden layer of the query's size."""

    def __init__(self, query_dim: int, key_dim: int) -> None:
        super().__init__()
        self.query = unbiased(query_dim, query_dim)
        self.key = linear(key_dim, query_dim)
        self.value = unbiased(query_dim, 1)

    def remember(self, source: Tensor) -> Tensor:
        return self.key(source)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        both = self.query(query)[:, :, None] + keys[:, None]  # (sources, n, S, dim)
        return self.value(both.tanh()).squeeze(-1)


class Location(Score):
    """Places beyond those that it knows are not seen."""

    def __init__(self, query_dim: int, places: int) -> None:
        super().__init__()
        self.place = unbiased(query_dim, places)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        scores = self.place(query)[..., : keys.shape[1]]  # (sources, n, S or fewer)
        return functional.pad(scores, (0, keys.shape[1] - scores.shape[-1]), value=-math.inf)


class Monotonic(nn.Module):
    """local-m: source and target walk side by side; the source waits at its end."""

    bell, counts = False, True

    def __init__(self, query_dim: int, radius: int) -> None:
        super().__init__()
        self.radius = radius

    def forward(self, query: Tensor, said: Tensor | None, length: Tensor) -> Tensor:
        """said (sources, n), length (sources or 1, 1) -> the center (sources, n)."""
        assert said is not None, "where a row stands must be told"
        return torch.minimum(said, (length - 1).clamp(min=0)).float()

    if TYPE_CHECKING:
        __call__ = forward


class Predicted(nn.Module):
    """local-p: the state says where to look."""

    bell, counts = True, False

    def __init__(self, query_dim: int, radius: int) -> None:
        super().__init__()
        self.radius = radius
        self.query = unbiased(query_dim, query_dim)
        self.value = unbiased(query_dim, 1)

    def forward(self, query: Tensor, said: Tensor | None, length: Tensor) -> Tensor:
        """query (sources, n, dim), length (sources or 1, 1) -> the center (sources, n)."""
        return length * self.value(self.query(query).tanh()).squeeze(-1).float().sigmoid()

    if TYPE_CHECKING:
        __call__ = forward


class WeightedSum(nn.Module):
    """The weighted sum, with its two taps: the weights, and what was found."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = HookPoint()  # (rows, 1, query, S); while searching (sources, 1, rows of the source x query, S)
        self.context = HookPoint()  # (rows, 1, query, dim), likewise

    @property
    def wanted(self) -> bool:
        return self.weights.wanted or self.context.wanted

    @property
    def changes(self) -> bool:
        return self.weights.changes or self.context.changes

    def forward(self, weights: Tensor, values: Tensor) -> Tensor:
        """(sources, n, S), (sources, S, dim) -> (sources, n, dim)."""
        return self.context(self.weights(weights[:, None]) @ values[:, None])[:, 0]

    if TYPE_CHECKING:
        __call__ = forward


class SourceAttention(nn.Module):
    """Score, scope and look. `said` (sources, n), how many tokens came before, is asked for by local-m alone."""

    def __init__(self, score: Score, scope: Monotonic | Predicted | None = None) -> None:
        super().__init__()
        self.score, self.scope = score, scope
        core = WeightedSum()
        self.weights, self.context, self.core = core.weights, core.context, core  # hook points are named after the attention

    @property
    def counts(self) -> bool:
        """Whether it must be told how much was said."""
        return self.scope is not None and self.scope.counts

    def remember(self, source: Tensor, mask: Tensor | None) -> Tree:
        """What was read (sources, S, dim) and which of it is real (sources, S) -> a memory."""
        return {"keys": self.score.remember(source), "values": source, "mask": mask}

    def weigh(self, query: Tensor, memory: Tree, said: Tensor | None = None) -> Tensor:
        """(sources, n, query_dim) -> (sources, n, S); rows sum to 1, or to 0 where nothing may be seen."""
        mask, places = memory["mask"], memory["values"].shape[1]
        scores = self.score(query, memory["keys"])
        seen = None if mask is None else mask[:, None]  # (sources, 1, S)
        if self.scope is None:
            return masked_softmax(scores, seen)
        whole = torch.full((1, 1), places, device=query.device)
        center = self.scope(query, said, whole if mask is None else mask.sum(-1, keepdim=True))
        away = torch.arange(places, device=query.device) - center[..., None]  # (sources, n, S)
        near = away.abs() <= self.scope.radius
        weights = masked_softmax(scores, near if seen is None else near & seen)
        if not self.scope.bell:
            return weights
        return weights * (-2 * (away / self.scope.radius).square()).exp().to(weights.dtype)

    def forward(self, query: Tensor, memory: Tree, said: Tensor | None = None) -> Tensor:
        """All looks at once: (rows, time, query_dim) -> what was found, (rows, time, dim)."""
        sources = memory["values"].shape[0]
        rows, time, _ = query.shape
        weights = self.weigh(query.reshape(sources, rows * time // sources, -1), memory, group_by_source(said, sources))
        return self.core(weights, memory["values"]).view(rows, time, -1)

    def once(self, query: Tensor, memory: Tree, said: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """One look of many: (rows, query_dim) -> the weights (rows, S) and what was found (rows, dim), heard by nobody."""
        values = memory["values"]
        weights = self.weigh(query.view(values.shape[0], -1, query.shape[-1]), memory, group_by_source(said, values.shape[0]))
        return weights.flatten(0, 1), (weights @ values).flatten(0, 1)

    def tell(self, weights: Sequence[Tensor], memory: Tree) -> Tensor | None:
        """Let listeners hear all the looks (rows, S) of a walk; if they interfere, what it should have found instead,
        (rows, time, dim)."""
        if not self.core.wanted:
            return None
        values = memory["values"]
        all_weights = torch.stack(list(weights), dim=1)  # (rows, time, S)
        found = self.core(all_weights.view(values.shape[0], -1, values.shape[1]), values)
        return found.view(*all_weights.shape[:2], -1) if self.core.changes else None

    if TYPE_CHECKING:
        __call__ = forward


def group_by_source(said: Tensor | None, sources: int) -> Tensor | None:
    """(rows, time) or (rows,) -> (sources, n)."""
    return None if said is None else said.reshape(sources, -1)


def masked_softmax(scores: Tensor, seen: Tensor | None) -> Tensor:
    """The softmax over what may be seen."""
    if seen is None:
        return scores.softmax(-1)
    return scores.masked_fill(~seen, -math.inf).softmax(-1).masked_fill(~seen, 0.0)


SCORES: dict[str, type[Dot] | type[General] | type[Additive]] = {"dot": Dot, "general": General, "concat": Additive}
SCOPES: dict[str, type[Monotonic] | type[Predicted]] = {"local-m": Monotonic, "local-p": Predicted}
