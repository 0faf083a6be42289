"""Which tokens come next: the best continuations of all beginnings of a source, or one drawn for each.

The best of a large vocabulary are found in two stages: the largest of every block of logits, and the members of the few
best blocks. That is exact, reads the logits once, and needs no softmax over the vocabulary, only the logarithm of its total.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from heedful.search.frontier import Frontier
from heedful.search.hypothesis import SearchConfig

BLOCK = 128
COLDEST = 1e-6  # a lower temperature draws the same, but would overflow


class EndRule(NamedTuple):
    """Which rows have reached their limit and can only end: a mask of the whole vocabulary would cost another pass."""

    must_end: Tensor  # (rows,)
    end: int

    def only(self, largest: Tensor, logits: Tensor) -> Tensor:
        """largest (rows, blocks) of what is left: in rows that must end, nothing but the end."""
        left = torch.where(self.must_end[:, None], -math.inf, largest)
        at = self.end // BLOCK
        left[:, at] = torch.where(self.must_end, logits[:, self.end].to(left.dtype), left[:, at])
        return left


class Expansion(NamedTuple):
    """Each (sources, beam)."""

    scores: Tensor  # log-probability of the longer beginning; -inf: none
    row: Tensor  # which beginning it goes on from
    token: Tensor

    def places(self, frontier: Frontier, config: SearchConfig, end: int) -> Tensor:
        """Where what has ended belongs among what was found; `beam` where it has not ended."""
        beam = self.scores.shape[1]
        ended = (self.token == end) & (self.scores > -math.inf)
        if config.method == "sample":
            place = torch.arange(beam, device=ended.device).expand_as(self.row)
        else:
            place = frontier.found[:, None] + ended.cumsum(1) - 1
        return place.masked_fill(~ended, beam)


def best_candidates(logits: Tensor, before: Tensor, largest: Tensor, allowed: EndRule, count: int) -> Expansion:
    """The `count` best continuations of each source.

    logits (rows, vocab); before (sources, beam): what to add to each row; largest (rows, blocks): of each block of logits."""
    sources, beam = before.shape
    vocab, blocks = logits.shape[1], largest.shape[1]
    reachable = allowed.only(largest, logits).view(sources, beam, blocks) + before[..., None]
    reached, chosen = top_candidates(reachable.flatten(1), count)  # (sources, count) blocks that hold all of the best
    row, first = (chosen // blocks).clamp(max=beam - 1), chosen % blocks * BLOCK
    tokens = first[..., None] + torch.arange(BLOCK, device=logits.device)  # (sources, count, BLOCK)
    flat_row = torch.arange(sources, device=logits.device)[:, None] * beam + row  # (sources, count)
    at = flat_row[..., None] * vocab + tokens.clamp(max=vocab - 1)
    total = logits.flatten()[at].float() + before.gather(1, row)[..., None]
    banned = (tokens >= vocab) | (reached == -math.inf)[..., None]
    banned |= allowed.must_end[flat_row][..., None] & (tokens != allowed.end)
    scores, index = top_candidates(total.masked_fill(banned, -math.inf).flatten(1), count)
    return Expansion(scores, row.gather(1, index // BLOCK), tokens.flatten(1).gather(1, index).clamp(max=vocab - 1))


def top_candidates(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row, largest first; where there are fewer, the rest are -inf."""
    if count > x.shape[1]:
        x = functional.pad(x, (0, count - x.shape[1]), value=-math.inf)
    if count == 1:
        values, index = x.max(1, keepdim=True)
        return values, index
    found = x.topk(count)
    return found.values, found.indices


def expand_beam(frontier: Frontier, logits: Tensor, largest: Tensor, normalize: Tensor, allowed: EndRule) -> Expansion:
    """Beam search: the best beginnings of each source, as many as have not ended; the others have none."""
    beam = frontier.scores.shape[1]
    choice = best_candidates(logits, frontier.scores - normalize.view(-1, beam), largest, allowed, beam)
    free = torch.arange(beam, device=logits.device) < (beam - frontier.found)[:, None]
    return choice._replace(scores=choice.scores.masked_fill(~free, -math.inf))


def sample_tokens(frontier: Frontier, logits: Tensor, normalize: Tensor, allowed: EndRule, config: SearchConfig) -> Expansion:
    """Every beginning goes on by itself, by the random numbers that belong to it."""
    sources, beam = frontier.scores.shape
    ends = logits[:, allowed.end]
    logits = torch.where(allowed.must_end[:, None], -math.inf, logits)
    logits[:, allowed.end] = ends
    if config.temperature == 0:
        token = logits.argmax(-1)
    else:
        at = frontier.count.clamp(max=frontier.draws.shape[-1] - 1)[:, None, None].expand(sources, beam, 1)
        chance = frontier.draws.gather(-1, at).flatten()  # (rows,)
        token = draw_tokens(logits.float() / max(config.temperature, COLDEST), chance, config.top_k, config.top_p)
    said = logits.gather(-1, token[:, None]).squeeze(-1).float() - normalize
    row = torch.arange(beam, device=logits.device).expand(sources, beam)
    return Expansion(frontier.scores + said.view(sources, beam), row, token.view(sources, beam))


def draw_tokens(scores: Tensor, chance: Tensor, top_k: int, top_p: float) -> Tensor:
    """By the inverse of the distribution function: scores (rows, vocab), chance (rows,) in [0, 1) -> ids (rows,)."""
    if not top_k and top_p == 1:  # among all: their order does not matter, and sorting them would cost more than the rest
        whole = scores.softmax(-1).cumsum(-1)
        total = whole[:, -1:]  # (rows, 1)
        share = torch.minimum(chance[:, None] * total, total.nextafter(torch.zeros_like(total)))  # never all of it
        at = torch.searchsorted(whole, share, right=True).squeeze(-1)
        return at.clamp(max=scores.shape[-1] - 1)  # of rows that are done, where nothing may be said
    probability, order = scores.softmax(-1).sort(dim=-1, descending=True, stable=True)
    before = probability.cumsum(-1) - probability  # what the likelier tokens have together
    kept = before < top_p
    kept[:, 0] = True  # in float32 a tiny top_p is 0
    if top_k:
        kept[:, top_k:] = False
    reached: Tensor = (probability * kept).cumsum(-1)
    rank = (reached <= chance[:, None] * reached[:, -1:]).sum(-1, keepdim=True)
    drawn: Tensor = order.gather(-1, rank.clamp(max=scores.shape[-1] - 1))  # (rows, 1)
    return drawn.squeeze(-1)
