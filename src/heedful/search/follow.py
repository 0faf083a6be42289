"""Following one path: say a token, feed it back, until the end. Greedy search takes the likeliest token, sampling draws.

Sampling draws by the inverse of the distribution function from random numbers that belong to the source and the seed, so
that a source's samples do not depend on which others happen to share its batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from heedful.nn.rows import select_sources
from heedful.search.hypothesis import Hypothesis, Query

Choose = Callable[[Tensor, Tensor, int], Tensor]  # scores (rows, vocab), which sources (rows,), time -> tokens (rows,)


def follow(query: Query, choose: Choose) -> list[Hypothesis]:
    """One hypothesis for each source; its score is its log-probability."""
    limits, states = query.limits, query.states
    alive = torch.arange(len(limits), device=limits.device)  # the sources that still speak
    said: list[list[int]] = [[] for _ in range(len(limits))]
    total = torch.zeros(len(limits), device=limits.device)  # (sources,)
    last = torch.full_like(limits, query.start)
    for time in range(int(limits.max())):
        scores, states = query.predict(last[:, None], states)  # (rows, vocab)
        scores = end_at_limit(scores, limits[alive] - 1 <= time, query.end)
        last = choose(scores, alive, time)
        total[alive] += scores.gather(-1, last[:, None]).squeeze(-1)
        going = last != query.end
        for source, token in zip(alive[going].tolist(), last[going].tolist(), strict=True):
            said[source].append(token)
        if not going.any():
            break
        if not going.all():
            kept = going.nonzero().squeeze(-1)
            states, alive, last = select_sources(states, kept, beam=1), alive[kept], last[kept]
    return [Hypothesis(tokens, score, score) for tokens, score in zip(said, total.tolist(), strict=True)]


def end_at_limit(scores: Tensor, must_end: Tensor, end: int) -> Tensor:
    """Where a row has reached its limit, leave only the end, at the probability it has: (…, vocab), (…,)."""
    if not must_end.any():
        return scores
    only = torch.full_like(scores, -math.inf)
    only[..., end] = scores[..., end]
    return torch.where(must_end[..., None], only, scores)


def greedy(query: Query) -> list[Hypothesis]:
    return follow(query, lambda scores, alive, time: scores.argmax(-1))


def sample(query: Query, *, temperature: float, top_k: int, top_p: float, seed: int) -> list[Hypothesis]:
    """Draw each token from the distribution, sharpened by a temperature below 1 and cut to its likeliest part."""
    if temperature == 0:
        return greedy(query)
    longest = int(query.limits.max())
    draws = torch.stack([uniform(seed, name, longest) for name in query.names]).to(query.limits.device)  # (sources, time)

    def choose(scores: Tensor, alive: Tensor, time: int) -> Tensor:
        return draw(scores / temperature, draws[alive, time], top_k, top_p)

    return follow(query, choose)


def draw(scores: Tensor, chance: Tensor, top_k: int, top_p: float) -> Tensor:
    """scores (rows, vocab), chance (rows,) in [0, 1) -> ids (rows,)."""
    probability, order = scores.softmax(-1).sort(dim=-1, descending=True, stable=True)
    before = probability.cumsum(-1) - probability  # what the likelier tokens have together
    kept = before < top_p
    if top_k:
        kept[:, top_k:] = False
    reached: Tensor = (probability * kept).cumsum(-1)
    rank = (reached <= chance[:, None] * reached[:, -1:]).sum(-1, keepdim=True)
    drawn: Tensor = order.gather(-1, rank.clamp(max=scores.shape[-1] - 1))  # (rows, 1)
    return drawn.squeeze(-1)


def uniform(seed: int, source: int, count: int) -> Tensor:
    """Random numbers in [0, 1) of one source: no two (seed, source) share a stream."""
    return torch.from_numpy(np.random.Generator(np.random.Philox(key=[seed, source])).random(count, dtype=np.float32))
