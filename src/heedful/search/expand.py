"""The next token of every hypothesis: the best expansions of all hypotheses of a source, or one sample for each.

The best of a large vocabulary are selected in two stages: the largest of every block of logits, and the members of the few
best blocks. That is exact, reads the logits once, and needs no softmax over the vocabulary, only its log-sum-exp.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from heedful.search.frontier import Frontier
from heedful.search.hypothesis import LOWEST_TEMPERATURE, SearchConfig

BLOCK = 128


class EndRule(NamedTuple):
    """The rows at their length limit, where only the end token is allowed: masking the whole vocabulary costs another pass."""

    must_end: Tensor  # (rows,)
    end: int

    def apply(self, largest: Tensor, logits: Tensor) -> Tensor:
        """Replace the largest logit of each block, (rows, blocks): in rows that must end, only the end token's is left."""
        left = torch.where(self.must_end[:, None], -math.inf, largest)
        block = self.end // BLOCK
        left[:, block] = torch.where(self.must_end, logits[:, self.end].to(left.dtype), left[:, block])
        return left


class Expansion(NamedTuple):
    """Hypotheses with one more token; each field (sources, beam)."""

    scores: Tensor  # log-probability; -inf: there is no hypothesis
    row: Tensor  # the hypothesis that was continued
    token: Tensor  # its next token

    def finished_index(self, frontier: Frontier, config: SearchConfig, end: int) -> Tensor:
        """Where each hypothesis that has ended is stored among the finished ones; `beam` for those that have not."""
        beam = self.scores.shape[1]
        ended = (self.token == end) & (self.scores > -math.inf)
        if config.method == "sample":
            index = torch.arange(beam, device=ended.device).expand_as(self.row)
        else:
            index = frontier.finished[:, None] + ended.cumsum(1) - 1
        return index.masked_fill(~ended, beam)


def best_candidates(logits: Tensor, before: Tensor, largest: Tensor, end_rule: EndRule, count: int) -> Expansion:
    """Select the `count` best expansions of each source.

    logits (rows, vocab); before (sources, beam): added to the logits of each row; largest (rows, blocks): of each block."""
    sources, beam = before.shape
    vocab, blocks = logits.shape[1], largest.shape[1]
    bounds = end_rule.apply(largest, logits).view(sources, beam, blocks) + before[..., None]
    bound, chosen = top_candidates(bounds.flatten(1), count)  # (sources, count) blocks that contain all of the best
    row, first = (chosen // blocks).clamp(max=beam - 1), chosen % blocks * BLOCK
    tokens = first[..., None] + torch.arange(BLOCK, device=logits.device)  # (sources, count, BLOCK)
    flat_row = torch.arange(sources, device=logits.device)[:, None] * beam + row  # (sources, count)
    at = flat_row[..., None] * vocab + tokens.clamp(max=vocab - 1)
    total = logits.flatten()[at].float() + before.gather(1, row)[..., None]
    banned = (tokens >= vocab) | (bound == -math.inf)[..., None]
    banned |= end_rule.must_end[flat_row][..., None] & (tokens != end_rule.end)
    scores, index = top_candidates(total.masked_fill(banned, -math.inf).flatten(1), count)
    return Expansion(scores, row.gather(1, index // BLOCK), tokens.flatten(1).gather(1, index).clamp(max=vocab - 1))


def top_candidates(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest values of each row and their indices, largest first; padded with -inf where there are fewer."""
    if count > x.shape[1]:
        x = functional.pad(x, (0, count - x.shape[1]), value=-math.inf)
    if count == 1:
        values, index = x.max(1, keepdim=True)
        return values, index
    top = x.topk(count)
    return top.values, top.indices


def expand_beam(frontier: Frontier, logits: Tensor, largest: Tensor, normalize: Tensor, end_rule: EndRule) -> Expansion:
    """Beam search: the best expansions of each source, as many as the beam has room for beside the finished hypotheses."""
    beam = frontier.scores.shape[1]
    expansion = best_candidates(logits, frontier.scores - normalize.view(-1, beam), largest, end_rule, beam)
    free = torch.arange(beam, device=logits.device) < (beam - frontier.finished)[:, None]
    return expansion._replace(scores=expansion.scores.masked_fill(~free, -math.inf))


def sample_tokens(frontier: Frontier, logits: Tensor, normalize: Tensor, end_rule: EndRule, config: SearchConfig) -> Expansion:
    """Sampling: every hypothesis is continued on its own, with its own random numbers."""
    sources, beam = frontier.scores.shape
    end_logits = logits[:, end_rule.end]
    logits = torch.where(end_rule.must_end[:, None], -math.inf, logits)
    logits[:, end_rule.end] = end_logits
    at = frontier.count.clamp(max=frontier.uniforms.shape[-1] - 1)[:, None, None].expand(sources, beam, 1)
    uniform = frontier.uniforms.gather(-1, at).flatten()  # (rows,)
    temperature, top_k, top_p = (
        option.repeat_interleave(beam)[:, None] for option in (frontier.temperature, frontier.top_k, frontier.top_p)
    )  # (rows, 1) each
    scores = logits.float() / temperature.clamp(min=LOWEST_TEMPERATURE)
    drawn = draw_truncated(scores, uniform, top_k, top_p) if config.truncates else draw_tokens(scores, uniform)
    token = torch.where(temperature.squeeze(-1) == 0, logits.argmax(-1), drawn)
    log_probability = logits.gather(-1, token[:, None]).squeeze(-1).float() - normalize  # (rows,)
    row = torch.arange(beam, device=logits.device).expand(sources, beam)
    return Expansion(frontier.scores + log_probability.view(sources, beam), row, token.view(sources, beam))


def draw_tokens(scores: Tensor, uniform: Tensor) -> Tensor:
    """Sample from all tokens by inverting the cumulative distribution: scores (rows, vocab), uniform (rows,) in [0, 1)
    -> ids (rows,). The order of the tokens does not matter, and sorting them would cost more than the rest."""
    cumulative = scores.softmax(-1).cumsum(-1)
    total = cumulative[:, -1:]  # (rows, 1)
    share = torch.minimum(uniform[:, None] * total, total.nextafter(torch.zeros_like(total)))  # always less than total
    at = torch.searchsorted(cumulative, share, right=True).squeeze(-1)
    return at.clamp(max=scores.shape[-1] - 1)  # in rows that are done, where no token is allowed


def draw_truncated(scores: Tensor, uniform: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """Sample from the most probable tokens, as `draw_tokens`; top_k, top_p (rows, 1): at most k tokens (0: any number) with a
    total probability of p."""
    probability, order = scores.softmax(-1).sort(dim=-1, descending=True, stable=True)
    before = probability.cumsum(-1) - probability  # total probability of the more probable tokens
    rank = torch.arange(scores.shape[-1], device=scores.device)
    kept = (before < top_p) & ((rank < top_k) | (top_k == 0))
    kept[:, 0] = True  # in float32 a tiny top_p is 0
    reached: Tensor = (probability * kept).cumsum(-1)
    chosen = (reached <= uniform[:, None] * reached[:, -1:]).sum(-1, keepdim=True)
    token: Tensor = order.gather(-1, chosen.clamp(max=scores.shape[-1] - 1))  # (rows, 1)
    return token.squeeze(-1)
