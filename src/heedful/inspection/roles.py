"""What a head does, told by where it looks most (Voita et al., 2019; Clark et al., 2019).

    looked(i) = argmax_j weights_ij                         j: real tokens; the marks around a sentence do not count

    positional   looked(i) = i + o, one offset o, for at least 90% of the tokens that have a neighbor there; for fewer, but
                 more than half of them, the head is told to do so mostly
    syntactic    looked(i) is what word i depends on, or what depends on it, by one relation
    rare         looked(i) is the least frequent token of the sentence
    alignment    looked(i) is a word of the source that target word i translates

Whatever a head is said to find, one that always looks at a fixed offset finds some of, too: the baseline is the best such
offset. Syntactic is who beats it by 10 points; rare and alignment, who besides is right at least half of the time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

RoleName = Literal["positional", "syntactic", "rare", "alignment"]

NEARLY_ALWAYS = 0.9
MOSTLY = 0.5
ABOVE = 0.1  # the baseline
ROUNDING = 1e-6  # of a share in single precision
FEWEST = 30  # cases; fewer prove nothing


class AttentionTargets(NamedTuple):
    """Where the heads looked in one sentence."""

    at: Tensor  # (heads, query) among the keys
    keys: int
    shift: int = 0  # the key that query 0 is itself

    @property
    def places(self) -> Tensor:
        """The key that each query is itself: (query,)."""
        return torch.arange(self.at.shape[1]) + self.shift


class Trials(NamedTuple):
    """How often heads found what was to be found, and where it stood."""

    hits: Tensor  # (heads,)
    cases: int
    offsets: Counter[int]  # of what was to be found

    @property
    def baseline(self) -> float:
        """The accuracy of the best fixed offset."""
        return max(self.offsets.values(), default=0) / max(self.cases, 1)

    @property
    def accuracy(self) -> Tensor:
        return self.hits / max(self.cases, 1)


def attention_targets(weights: Tensor, shift: int = 0) -> AttentionTargets:
    """weights (heads, query, key) of real tokens."""
    return AttentionTargets(weights.argmax(-1).cpu(), weights.shape[-1], shift)


def positional(sentences: Sequence[AttentionTargets]) -> tuple[Tensor, Tensor, Tensor]:
    """Of every head its most frequent offset, how often it looks there if there is a token, and how many there are."""
    offsets = torch.cat([one.at - one.places for one in sentences], dim=-1)  # (heads, tokens)
    usual = offsets.mode(-1, keepdim=True).values  # (heads, 1)
    there = torch.cat([inside(one, usual) for one in sentences], dim=-1)  # (heads, tokens)
    return usual.squeeze(-1), (offsets == usual).sum(-1) / there.sum(-1), there.sum(-1)


def inside(one: AttentionTargets, offset: Tensor) -> Tensor:
    """Whether a token stands at this offset (heads, 1) from each query: (heads, query)."""
    return (one.places + offset >= 0) & (one.places + offset < one.keys)


def trials(one: AttentionTargets, wanted: Tensor) -> Trials:
    """wanted (query, key): True where looking is right; a query for which nothing is right is not asked."""
    hits = wanted[torch.arange(len(wanted)), one.at].sum(-1)  # (heads,)
    query, key = wanted.nonzero(as_tuple=True)
    return Trials(hits, int(wanted.any(-1).sum()), Counter((key - query - one.shift).tolist()))


def merge_trials(several: Sequence[Trials]) -> Trials:
    """At least one."""
    hits = torch.stack([one.hits for one in several]).sum(0)
    return Trials(hits, sum(one.cases for one in several), sum((one.offsets for one in several), Counter()))


class Measure(NamedTuple):
    """How well a head does one thing."""

    role: RoleName
    what: str  # the offset, or the relation and where it leads; else nothing
    value: float  # from 0 to 1
    baseline: float | None  # what a fixed offset would reach
    cases: int

    @property
    def holds(self) -> bool:
        """Whether this is what the head does."""
        if self.cases < FEWEST:
            return False
        if self.baseline is None:
            return self.value >= NEARLY_ALWAYS - ROUNDING
        least = 0.0 if self.role == "syntactic" else MOSTLY
        return self.value >= max(self.baseline + ABOVE, least)

    @property
    def holds_mostly(self) -> bool:
        """Whether this is a place that the head looks at mostly, but not nearly always."""
        return self.role == "positional" and not self.holds and self.cases >= FEWEST and self.value > MOSTLY


def measures_of_position(sentences: Sequence[AttentionTargets]) -> list[Measure]:
    """One for each head."""
    columns = (column.tolist() for column in positional(sentences))
    named = ((f"{offset:+d}" if offset else "itself", share, cases) for offset, share, cases in zip(*columns, strict=True))
    return [Measure("positional", what, share, None, cases) for what, share, cases in named]


def measures_of_trials(role: RoleName, what: str, several: Sequence[Trials]) -> list[Measure]:
    """One for each head."""
    total = merge_trials(several)
    return [Measure(role, what, value, total.baseline, total.cases) for value in total.accuracy.tolist()]
