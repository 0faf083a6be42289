"""Attention of recurrent decoders to the source, with various score functions. q: decoder state, k: encoder output.

    dot         q . k
    general     q . W k                          Luong et al., 2015
    concat      v . tanh(W q + U k + b)          Bahdanau et al., 2015; Luong's v . tanh(W [q; k]) split in two
    location    (W q)_s                          depends on the source position only: Luong et al.

    weights = softmax over the source positions s that are not masked;    context = sum_s weights_s value_s

A scope restricts attention to positions at most D from a center p (Luong et al.); S: source length:

    local-m     p = t, the target position
    local-p     p = S sigmoid(v . tanh(W q)), and the weights are multiplied by exp(-(s - p)^2 / (2 (D/2)^2))

Everything that depends on the source alone is computed once per source.
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
    layer = Linear(inputs, outputs, bias=False)
    nn.init.xavier_uniform_(layer.weight)
    return layer


class Score(nn.Module):
    """Scores of queries (sources, n, query_dim) and keys (sources, S, …): (sources, n, S)."""

    def project_keys(self, source: Tensor) -> Tensor:
        """Encoder output (sources, S, dim) -> keys."""
        return source

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        raise NotImplementedError

    if TYPE_CHECKING:
        __call__ = forward


class Dot(Score):
    def __init__(self, query_dim: int, key_dim: int) -> None:
        assert query_dim == key_dim, f"a dot product requires equal sizes, but they are {query_dim} and {key_dim}"
        super().__init__()

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return query @ keys.transpose(1, 2)


class General(Score):
    def __init__(self, query_dim: int, key_dim: int) -> None:
        super().__init__()
        self.key = unbiased(key_dim, query_dim)

    def project_keys(self, source: Tensor) -> Tensor:
        return self.key(source)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return query @ keys.transpose(1, 2)


class Additive(Score):
    """A hidden layer, by default of the query's size."""

    def __init__(self, query_dim: int, key_dim: int, dim: int | None = None) -> None:
        super().__init__()
        hidden = dim or query_dim
        self.query: nn.Linear = unbiased(query_dim, hidden)
        self.key = linear(key_dim, hidden)
        self.value = unbiased(hidden, 1)

    def project_keys(self, source: Tensor) -> Tensor:
        return self.key(source)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return self.compare(self.query(query), keys)

    def compare(self, query: Tensor, keys: Tensor) -> Tensor:
        """The scores of projected queries (sources, n, dim)."""
        both = query[:, :, None] + keys[:, None]  # (sources, n, S, dim)
        return self.value(both.tanh()).squeeze(-1)


class Location(Score):
    """Scores from the query alone; source positions beyond the first `places` are masked."""

    def __init__(self, query_dim: int, places: int) -> None:
        super().__init__()
        self.place = unbiased(query_dim, places)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        scores = self.place(query)[..., : keys.shape[1]]  # (sources, n, S or fewer)
        return functional.pad(scores, (0, keys.shape[1] - scores.shape[-1]), value=-math.inf)


class Monotonic(nn.Module):
    """local-m: the center is the target position, at most the last source position."""

    gaussian, needs_positions = False, True

    def __init__(self, query_dim: int, radius: int) -> None:
        super().__init__()
        self.radius = radius

    def forward(self, query: Tensor, position: Tensor | None, length: Tensor) -> Tensor:
        """position (sources, n), length (sources or 1, 1) -> the center (sources, n)."""
        assert position is not None, "local-m attention requires target positions"
        return torch.minimum(position, (length - 1).clamp(min=0)).float()

    if TYPE_CHECKING:
        __call__ = forward


class Predicted(nn.Module):
    """local-p: the center is predicted from the query."""

    gaussian, needs_positions = True, False

    def __init__(self, query_dim: int, radius: int) -> None:
        super().__init__()
        self.radius = radius
        self.query = unbiased(query_dim, query_dim)
        self.value = unbiased(query_dim, 1)

    def forward(self, query: Tensor, position: Tensor | None, length: Tensor) -> Tensor:
        """query (sources, n, dim), length (sources or 1, 1) -> the center (sources, n)."""
        return length * self.value(self.query(query).tanh()).squeeze(-1).float().sigmoid()

    if TYPE_CHECKING:
        __call__ = forward


class WeightedSum(nn.Module):
    """The weighted sum of values, with two hook points: the weights and the context vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = HookPoint()  # (rows, 1, query, S); in search (sources, 1, rows of the source x query, S)
        self.context = HookPoint()  # (rows, 1, query, dim); in search as above

    @property
    def has_hooks(self) -> bool:
        return self.weights.has_hooks or self.context.has_hooks

    @property
    def changes(self) -> bool:
        return self.weights.changes or self.context.changes

    def forward(self, weights: Tensor, values: Tensor) -> Tensor:
        """(sources, n, S), (sources, S, dim) -> (sources, n, dim)."""
        return self.context(self.weights(weights[:, None]) @ values[:, None])[:, 0]

    if TYPE_CHECKING:
        __call__ = forward


class SourceAttention(nn.Module):
    """Attention with a score function and an optional scope. `position`, the target position, is required by local-m only."""

    def __init__(self, score: Score, scope: Monotonic | Predicted | None = None) -> None:
        super().__init__()
        self.score, self.scope = score, scope
        core = WeightedSum()
        self.weights, self.context, self.core = core.weights, core.context, core  # hook points are named after the attention

    @property
    def needs_positions(self) -> bool:
        """Whether target positions must be passed."""
        return self.scope is not None and self.scope.needs_positions

    def make_memory(self, source: Tensor, mask: Tensor | None) -> Tree:
        """Encoder output (sources, S, dim) and padding mask (sources, S) -> keys, values and mask."""
        return {"keys": self.score.project_keys(source), "values": source, "mask": mask}

    def weigh(self, query: Tensor, memory: Tree, position: Tensor | None = None) -> Tensor:
        """Attention weights: (sources, n, query_dim) -> (sources, n, S), with sum 1, or 0 where all is masked."""
        mask, places = memory["mask"], memory["values"].shape[1]
        scores = self.score(query, memory["keys"])
        allowed = None if mask is None else mask[:, None]  # (sources, 1, S)
        if self.scope is None:
            return masked_softmax(scores, allowed)
        whole = torch.full((1, 1), places, device=query.device)
        center = self.scope(query, position, whole if mask is None else mask.sum(-1, keepdim=True))
        distance = torch.arange(places, device=query.device) - center[..., None]  # (sources, n, S)
        near = distance.abs() <= self.scope.radius
        weights = masked_softmax(scores, near if allowed is None else near & allowed)
        if not self.scope.gaussian:
            return weights
        return weights * (-2 * (distance / self.scope.radius).square()).exp().to(weights.dtype)

    def forward(self, query: Tensor, memory: Tree, position: Tensor | None = None) -> Tensor:
        """Attend with all queries at once: (rows, time, query_dim) -> context vectors (rows, time, dim)."""
        sources = memory["values"].shape[0]
        rows, time, _ = query.shape
        weights = self.weigh(query.reshape(sources, rows * time // sources, -1), memory, group_by_source(position, sources))
        return self.core(weights, memory["values"]).view(rows, time, -1)

    def attend_step(self, query: Tensor, memory: Tree, position: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Attend with one query per row, without hooks: (rows, query_dim) -> weights (rows, S), context (rows, dim)."""
        values = memory["values"]
        weights = self.weigh(
            query.view(values.shape[0], -1, query.shape[-1]), memory, group_by_source(position, values.shape[0])
        )
        return weights.flatten(0, 1), (weights @ values).flatten(0, 1)

    def apply_hooks(self, weights: Sequence[Tensor], memory: Tree) -> Tensor | None:
        """Apply hooks to the weights (rows, S) of all steps -> the changed context vectors (rows, time, dim), or None if no
        hook changes values."""
        if not self.core.has_hooks:
            return None
        values = memory["values"]
        all_weights = torch.stack(list(weights), dim=1)  # (rows, time, S)
        context = self.core(all_weights.view(values.shape[0], -1, values.shape[1]), values)
        return context.view(*all_weights.shape[:2], -1) if self.core.changes else None

    if TYPE_CHECKING:
        __call__ = forward


def group_by_source(position: Tensor | None, sources: int) -> Tensor | None:
    """(rows, time) or (rows,) -> (sources, n)."""
    return None if position is None else position.reshape(sources, -1)


def masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax over the positions where mask is True; zeros where all are False."""
    if mask is None:
        return scores.softmax(-1)
    return scores.masked_fill(~mask, -math.inf).softmax(-1).masked_fill(~mask, 0.0)


SCORES: dict[str, type[Dot] | type[General] | type[Additive]] = {"dot": Dot, "general": General, "concat": Additive}
SCOPES: dict[str, type[Monotonic] | type[Predicted]] = {"local-m": Monotonic, "local-p": Predicted}
