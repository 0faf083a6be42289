"""Constraints on the next token: each takes logits (rows, vocab) and sets those of banned tokens to -inf.

The remaining tokens keep the model's probabilities. A forced prefix takes precedence over the other constraints, and where
a constraint would ban every token it bans none.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from heedful.nn.kernels import blockwise_logsumexp
from heedful.search.expand import BLOCK
from heedful.search.frontier import Frontier
from heedful.search.hypothesis import SearchConfig


def constrain(logits: Tensor, largest: Tensor, frontier: Frontier, config: SearchConfig, end: int) -> tuple[Tensor, Tensor]:
    """Apply all constraints of the config; return logits (rows, vocab), perhaps changed in place, and each block's largest.

    Length limits are applied by `EndRule` in expand.py, which need not read the whole vocabulary."""
    beam = frontier.scores.shape[1]
    count = frontier.count.repeat_interleave(beam)[:, None]  # (rows, 1)
    if frontier.prefix.shape[1]:
        logits = force_prefix(logits, frontier.prefix.repeat_interleave(beam, 0), frontier.prefix_length, count)
    if config.no_repeat:
        logits = mask_unless_empty(logits, repeated_ngrams(logits, frontier.tokens.flatten(0, 1), count, config.no_repeat))
    if config.min_length:
        end_logits = logits[:, end].clone()
        too_early = (count.squeeze(-1) < config.min_length) & ~at_length_limit(frontier)
        logits[:, end] = torch.where(too_early, -math.inf, end_logits)
        if config.no_repeat:  # otherwise some token is always left
            empty = ~(logits > -math.inf).any(-1)
            logits[:, end] = torch.where(empty, end_logits, logits[:, end])
        first = end // BLOCK * BLOCK
        largest[:, end // BLOCK] = logits[:, first : first + BLOCK].amax(-1).to(largest.dtype)
    if frontier.prefix.shape[1] or config.no_repeat:
        largest, _ = blockwise_logsumexp(logits, BLOCK)
    return logits, largest


def at_length_limit(frontier: Frontier) -> Tensor:
    """(rows,): True where only one more token is allowed."""
    return (frontier.count >= frontier.limits - 1).repeat_interleave(frontier.scores.shape[1])


def mask_unless_empty(logits: Tensor, banned: Tensor) -> Tensor:
    """Mask the banned tokens, (rows, vocab), except in rows where no other token is left."""
    left = logits.masked_fill(banned, -math.inf)
    return torch.where((left > -math.inf).any(-1, keepdim=True), left, logits)


def force_prefix(logits: Tensor, prefix: Tensor, lengths: Tensor, count: Tensor) -> Tensor:
    """Allow only the next token of the prefix until its end: prefix (rows, longest), lengths (sources,), count (rows, 1)."""
    forced = prefix.gather(1, count.clamp(max=prefix.shape[1] - 1))  # (rows, 1)
    past_prefix = count >= lengths.repeat_interleave(len(logits) // len(lengths))[:, None]  # (rows, 1)
    only = torch.full_like(logits, -math.inf).scatter(-1, forced, logits.gather(-1, forced))
    return torch.where(past_prefix, logits, only)


def repeated_ngrams(logits: Tensor, tokens: Tensor, count: Tensor, length: int) -> Tensor:
    """(rows, vocab): tokens that would repeat an n-gram of this length; tokens (rows, longest), count (rows, 1)."""
    banned = torch.zeros_like(logits, dtype=torch.bool)
    if tokens.shape[1] < length:
        return banned
    grams = tokens.unfold(1, length, 1)  # (rows, grams, length)
    complete = torch.arange(grams.shape[1], device=tokens.device) + length <= count  # (rows, grams)
    back = (count + torch.arange(1 - length, 0, device=tokens.device)).clamp(min=0, max=tokens.shape[1] - 1)
    last = tokens.gather(1, back)[:, None]  # (rows, 1, length - 1)
    matches = complete & (grams[..., :-1] == last).all(-1)  # n-grams that start with the last tokens
    repeated = torch.zeros_like(logits).scatter_reduce(-1, grams[..., -1], matches.to(logits.dtype), "amax")
    return banned | (repeated > 0)
