"""Where the search of each source stands: tensors alone, changed in place, so that a step can be captured.

A source that is done waits to be harvested; its place may then be taken by another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from heedful.search.hypothesis import Hypothesis, SearchConfig


@dataclass
class Frontier:
    scores: Tensor  # (sources, beam) log-probability of each living beginning; -inf: there is none
    said: Tensor  # (sources, beam, longest)
    count: Tensor  # (sources,) how many tokens a beginning has
    limits: Tensor  # (sources,) at most so many tokens, the end counted; the last one must be the end
    prefix: Tensor  # (sources, longest prefix) what must be said first
    prefix_length: Tensor  # (sources,)
    draws: Tensor  # (sources, beam, longest), random numbers in [0, 1) where samples are drawn
    found: Tensor  # (sources,) how many hypotheses have ended
    found_scores: Tensor  # (sources, beam + 1) their scores, NaN: the model's were not finite; the last place is discarded
    found_total: Tensor  # (sources, beam + 1) their log-probabilities
    found_length: Tensor  # (sources, beam + 1) their tokens, the end not counted
    found_said: Tensor  # (sources, beam + 1, longest)
    last: Tensor  # (sources, beam) the token that was said last
    done: Tensor  # (sources,) nothing better can be found

    def tensors(self) -> list[Tensor]:
        return [getattr(self, field.name) for field in fields(self)]


def empty_frontier(sources: int, longest: int, prefix: int, config: SearchConfig, device: torch.device) -> Frontier:
    """Room for so many sources, none of them there."""

    def full(value: float, *shape: int, dtype: torch.dtype = torch.long) -> Tensor:
        return torch.full((sources, *shape), value, dtype=dtype, device=device)

    beam, real = config.rows, torch.float32
    return Frontier(
        scores=full(-math.inf, beam, dtype=real),
        said=full(0, beam, longest),
        count=full(0),
        limits=full(1),
        prefix=full(0, prefix),
        prefix_length=full(0),
        draws=full(0.0, beam, longest if config.method == "sample" else 0, dtype=real),
        found=full(0),
        found_scores=full(-math.inf, beam + 1, dtype=real),
        found_total=full(0.0, beam + 1, dtype=real),
        found_length=full(0, beam + 1),
        found_said=full(0, beam + 1, longest),
        last=full(0, beam),
        done=full(True, dtype=torch.bool),
    )


Arrivals = dict[str, Tensor]  # what a frontier must know of new sources, by the names of its fields


def start_sources(
    config: SearchConfig, limits: Tensor, names: Sequence[int], prefixes: Sequence[Sequence[int]], start: int, longest: int
) -> Arrivals:
    """New sources, not yet anywhere: everything that a frontier holds of them."""
    count, beam, device = len(limits), config.rows, limits.device
    scores = torch.zeros(count, beam, device=device)
    if config.method == "beam":
        scores[:, 1:] = -math.inf  # all beams begin alike: let only the first one branch
    room = max(map(len, prefixes), default=0)
    padded = torch.tensor([[*prefix, *[0] * (room - len(prefix))] for prefix in prefixes], dtype=torch.long)
    arrivals = {
        "scores": scores,
        "limits": limits,
        "prefix": padded.to(device),
        "prefix_length": torch.tensor([len(prefix) for prefix in prefixes], device=device),
        "last": torch.full((count, beam), start, device=device),
    }
    if config.method == "sample":
        rows = [uniform(config.seed, name * beam + k, longest) for name in names for k in range(beam)]
        arrivals["draws"] = torch.stack(rows).view(count, beam, -1).to(device)
    return arrivals


def insert(frontier: Frontier, arrivals: Arrivals, where: Tensor) -> None:
    """Let new sources take the places `where`, with nothing said and nothing found."""
    nothing = {"count": 0, "found": 0, "found_scores": -math.inf, "done": False}
    for name, value in nothing.items():
        getattr(frontier, name).index_fill_(0, where, value)
    for name, new in arrivals.items():
        old: Tensor = getattr(frontier, name)
        missing = old.shape[-1] - new.shape[-1] if old.dim() > 1 else 0
        old.index_copy_(0, where, functional.pad(new, (0, missing)) if missing else new)


def keep_sources(frontier: Frontier, sources: Tensor) -> Frontier:
    """Only these sources."""
    return Frontier(*(tensor.index_select(0, sources) for tensor in frontier.tensors()))


def nonfinite_sources(frontier: Frontier, normalize: Tensor) -> Tensor:
    """(sources, 1): where the log-sum-exp of a living row's logits, (rows,), is not finite, so that no score can be."""
    living = frontier.scores > -math.inf
    return (living & ~normalize.view_as(living).isfinite()).any(1, keepdim=True)


def record_finished(
    frontier: Frontier, scores: Tensor, row: Tensor, token: Tensor, place: Tensor, penalty: Tensor, n_best: int
) -> None:
    """Take one step: the beginnings are now those of `row` with `token` behind them, and what has ended is put away.

    scores, row, token, each (sources, beam); place (sources, beam): where each of them belongs among what was found, and
    `beam` where it has not ended; penalty (longest + 1,) of each length. NaN scores end the search of their source, and
    what it has found counts no more."""
    ended = place < scores.shape[1]
    parents = frontier.said.gather(1, row[..., None].expand_as(frontier.said))  # (sources, beam, longest)
    length = frontier.count + 1  # (sources,) the end counted
    judged = scores / penalty[length][:, None]
    frontier.found_scores.scatter_(1, place, judged)
    frontier.found_scores[:, -1].fill_(-math.inf)
    frontier.found_total.scatter_(1, place, scores)
    frontier.found_length.scatter_(1, place, frontier.count[:, None].expand_as(place))
    frontier.found_said.scatter_(1, place[..., None].expand_as(parents), parents)
    frontier.found += ended.sum(1)
    living = scores.masked_fill(ended, -math.inf)
    frontier.found_scores.masked_fill_(scores.isnan().any(1, keepdim=True), math.nan)
    enough = frontier.found_scores.topk(n_best).values[:, -1]  # (sources,) to be overtaken
    best = living.max(1).values
    # Log-probabilities only fall, and the penalty of the limit is the largest there is.
    frontier.done |= ~((best > -math.inf) & (best / penalty[frontier.limits] > enough))
    at = frontier.count.clamp(max=parents.shape[-1] - 1)[:, None, None].expand(*token.shape, 1)
    frontier.said.copy_(parents.scatter_(-1, at, token[..., None]))
    frontier.scores.copy_(living.masked_fill(frontier.done[:, None], -math.inf))
    frontier.last.copy_(token)
    frontier.count += ~frontier.done


def collect_hypotheses(frontier: Frontier, sources: Sequence[int], config: SearchConfig) -> list[list[Hypothesis]]:
    """The hypotheses of sources that are done: best first, or samples in the order of their draws.

    None for a source whose scores were not finite."""
    where = torch.tensor(sources, device=frontier.found.device)
    scores = frontier.found_scores.index_select(0, where)
    if config.method == "sample":
        chosen = torch.arange(config.n_best, device=where.device).expand(len(sources), -1)
    else:
        chosen = scores.topk(config.n_best).indices  # (sources, n_best)
    judged, totals, lengths = (
        tensor.gather(1, chosen).tolist()
        for tensor in (scores, frontier.found_total.index_select(0, where), frontier.found_length.index_select(0, where))
    )
    said = frontier.found_said.index_select(0, where)
    tokens = said.gather(1, chosen[..., None].expand(-1, -1, said.shape[-1])).tolist()
    judge = config.length_penalty_fn
    return [
        [
            Hypothesis(tokens[i][k][:length], totals[i][k] / judge(length + 1), totals[i][k])
            for k, length in enumerate(lengths[i])
            if judged[i][k] > -math.inf
        ]
        for i in range(len(sources))
    ]


def uniform(seed: int, source: int, count: int) -> Tensor:
    """Random numbers in [0, 1) of one source: no two (seed, source) share a stream."""
    key = [seed, source % 2**64]
    return torch.from_numpy(np.random.Generator(np.random.Philox(key=key)).random(count, dtype=np.float32))
