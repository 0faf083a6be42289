"""Beam search: keep the `beam` best beginnings of every source, by summed log-probability, until they have ended.

A finished hypothesis keeps its place, so a beam of one is greedy search, and a beam as wide as the space ranks all of it.
A source is done when no place is left, or when no living beginning can overtake the hypotheses wanted: log-probabilities
only fall, so a beginning will never score better than now, divided by the largest penalty that it may still reach.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from heedful.nn.rows import select_rows, select_sources
from heedful.search.follow import end_at_limit
from heedful.search.hypothesis import Hypothesis, Penalty, Query


def beam_search(query: Query, *, beam: int, penalty: Penalty, n_best: int = 1) -> list[list[Hypothesis]]:
    """The best hypotheses of each source, best first."""
    limits = query.limits
    count, device = len(limits), limits.device
    found: list[list[Hypothesis]] = [[] for _ in range(count)]
    alive = torch.arange(count, device=device)  # the sources that are still searched
    states = select_rows(query.states, alive.repeat_interleave(beam))
    scores = torch.full((count, beam), -math.inf, device=device)  # (sources, beam)
    scores[:, 0] = 0.0  # all beams begin alike: let only the first one branch
    places = torch.full((count,), beam, device=device)  # (sources,) not yet taken by finished hypotheses
    said = torch.empty(count, beam, 0, dtype=torch.long, device=device)  # (sources, beam, time)
    last = torch.full((count * beam, 1), query.start, device=device)
    for time in range(int(limits.max())):
        following, states = query.predict(last, states)  # (sources x beam, vocab)
        following = end_at_limit(following.view(len(alive), beam, -1), (limits[alive] - 1 <= time)[:, None], query.end)
        scores, row, token = branch(scores[..., None] + following, beam)
        valid = (torch.arange(beam, device=device) < places[:, None]) & (scores > -math.inf)
        ended = valid & (token == query.end)
        for source, rank in ended.nonzero().tolist():
            log_probability = float(scores[source, rank])
            tokens = said[source, row[source, rank]].tolist()
            found[alive[source]].append(Hypothesis(tokens, log_probability / penalty(time + 1), log_probability))
        places -= ended.sum(-1)
        scores = scores.masked_fill(~valid | ended, -math.inf)
        going = undecided(scores, [found[source] for source in alive.tolist()], limits[alive], penalty, n_best)
        if not going.any():
            break
        said = torch.cat((said.gather(1, row[..., None].expand_as(said)), token[..., None]), dim=-1)
        states = select_rows(states, (torch.arange(len(alive), device=device)[:, None] * beam + row).flatten())
        if not going.all():
            kept = going.nonzero().squeeze(-1)
            states = select_sources(states, kept, beam)
            alive, scores, places, said, token = alive[kept], scores[kept], places[kept], said[kept], token[kept]
        last = token.view(-1, 1)
    return [sorted(hypotheses, key=lambda h: h.score, reverse=True)[:n_best] for hypotheses in found]


def branch(total: Tensor, beam: int) -> tuple[Tensor, Tensor, Tensor]:
    """(sources, beam, vocab) -> the best continuations: scores, the rows they come from, tokens, each (sources, beam)."""
    vocab = total.shape[-1]
    scores, index = total.flatten(1).topk(beam)
    return scores, index // vocab, index % vocab


def undecided(scores: Tensor, found: list[list[Hypothesis]], limits: Tensor, penalty: Penalty, n_best: int) -> Tensor:
    """(sources,) whether a living beginning may still become one of the `n_best`."""
    best = scores.max(-1).values.tolist()  # -inf: nothing lives
    going = [
        now > -math.inf
        and (len(hypotheses) < n_best or now / penalty(limit) > sorted((h.score for h in hypotheses), reverse=True)[n_best - 1])
        for now, hypotheses, limit in zip(best, found, limits.tolist(), strict=True)
    ]
    return torch.tensor(going, device=scores.device)
