"""What may be said: each constraint takes logits (rows, vocab) and bans tokens by -inf.

The probability of what is left stays what the model gives it. What must be said comes before what should be: a prefix is
said whatever it repeats, and where nothing is left everything passes.
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
    """All that the config asks for: logits (rows, vocab), perhaps changed in place, and the largest of each block of them.

    The limits are kept by `choose`, which need not look at the whole vocabulary for it."""
    beam = frontier.scores.shape[1]
    count = frontier.count.repeat_interleave(beam)[:, None]  # (rows, 1)
    if frontier.prefix.shape[1]:
        logits = force_prefix(logits, frontier.prefix.repeat_interleave(beam, 0), frontier.prefix_length, count)
    if config.no_repeat:
        logits = mask_unless_empty(logits, repeated_ngrams(logits, frontier.said.flatten(0, 1), count, config.no_repeat))
    if config.min_length:
        ends = logits[:, end].clone()
        logits[:, end] = torch.where((count.squeeze(-1) < config.min_length) & ~at_length_limit(frontier), -math.inf, ends)
        if config.no_repeat:  # else there is always something left
            nothing = ~(logits > -math.inf).any(-1)
            logits[:, end] = torch.where(nothing, ends, logits[:, end])
        begin = end // BLOCK * BLOCK
        largest[:, end // BLOCK] = logits[:, begin : begin + BLOCK].amax(-1).to(largest.dtype)
    if frontier.prefix.shape[1] or config.no_repeat:
        largest, _ = blockwise_logsumexp(logits, BLOCK)
    return logits, largest


def at_length_limit(frontier: Frontier) -> Tensor:
    """(rows,): which rows have one token left."""
    return (frontier.count >= frontier.limits - 1).repeat_interleave(frontier.scores.shape[1])


def mask_unless_empty(logits: Tensor, banned: Tensor) -> Tensor:
    """Ban what is banned, (rows, vocab), but in a row where nothing else is possible let everything pass."""
    left = logits.masked_fill(banned, -math.inf)
    return torch.where((left > -math.inf).any(-1, keepdim=True), left, logits)


def force_prefix(logits: Tensor, prefix: Tensor, lengths: Tensor, count: Tensor) -> Tensor:
    """Only the prefix's next token, as long as there is one: prefix (rows, longest), lengths (sources,), count (rows, 1)."""
    wanted = prefix.gather(1, count.clamp(max=prefix.shape[1] - 1))  # (rows, 1)
    free = count >= lengths.repeat_interleave(len(logits) // len(lengths))[:, None]  # (rows, 1)
    only = torch.full_like(logits, -math.inf).scatter(-1, wanted, logits.gather(-1, wanted))
    return torch.where(free, logits, only)


def repeated_ngrams(logits: Tensor, said: Tensor, count: Tensor, length: int) -> Tensor:
    """(rows, vocab): what would say an n-gram of this length again; said (rows, longest), count (rows, 1)."""
    banned = torch.zeros_like(logits, dtype=torch.bool)
    if said.shape[1] < length:
        return banned
    grams = said.unfold(1, length, 1)  # (rows, grams, length)
    complete = torch.arange(grams.shape[1], device=said.device) + length <= count  # (rows, grams)
    back = (count + torch.arange(1 - length, 0, device=said.device)).clamp(min=0, max=said.shape[1] - 1)
    last = said.gather(1, back)[:, None]  # (rows, 1, length - 1)
    seen = complete & (grams[..., :-1] == last).all(-1)  # begins as the last tokens do
    again = torch.zeros_like(logits).scatter_reduce(-1, grams[..., -1], seen.to(logits.dtype), "amax")
    return banned | (again > 0)
