"""Roles of heads, by the key of their largest attention weight (Voita et al., 2019; Clark et al., 2019).

    target(i) = argmax_j weights_ij                         j: tokens of the sentence, without start, end and padding

    positional   target(i) = i + o for one offset o and at least 90% of the tokens with a key there (mostly positional: for more
                 than half)
    syntactic    target(i) is the head or a dependent of word i in one dependency relation
    rare         target(i) is the least frequent token of the sentence
    alignment    target(i) is a source word aligned with target word i

The baseline is the best head that attends to a fixed offset. A syntactic head exceeds it by 10 points; rare and alignment heads
also have an accuracy of at least 50%.
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
ABOVE = 0.1  # required margin over the baseline
ROUNDING = 1e-6  # tolerance for shares in single precision
FEWEST = 30  # cases required


class AttentionTargets(NamedTuple):
    """The keys of largest weight in one sentence."""

    at: Tensor  # (heads, query): key indices
    keys: int  # number of keys
    shift: int = 0  # key index of query 0

    @property
    def places(self) -> Tensor:
        """The key index of each query's own token: (query,)."""
        return torch.arange(self.at.shape[1]) + self.shift


class Trials(NamedTuple):
    """How often heads attend to an expected key, and the offsets of these keys."""

    hits: Tensor  # (heads,)
    cases: int
    offsets: Counter[int]  # of the expected keys

    @property
    def baseline(self) -> float:
        """The accuracy of the best fixed offset."""
        return max(self.offsets.values(), default=0) / max(self.cases, 1)

    @property
    def accuracy(self) -> Tensor:
        return self.hits / max(self.cases, 1)


def attention_targets(weights: Tensor, shift: int = 0) -> AttentionTargets:
    """weights (heads, query, key) without special tokens and padding."""
    return AttentionTargets(weights.argmax(-1).cpu(), weights.shape[-1], shift)


def positional(sentences: Sequence[AttentionTargets]) -> tuple[Tensor, Tensor, Tensor]:
    """Return for every head its most frequent offset, the share of queries with it, and the number of valid queries."""
    offsets = torch.cat([sentence.at - sentence.places for sentence in sentences], dim=-1)  # (heads, tokens)
    usual = offsets.mode(-1, keepdim=True).values  # (heads, 1)
    valid = torch.cat([inside(sentence, usual) for sentence in sentences], dim=-1)  # (heads, tokens)
    return usual.squeeze(-1), (offsets == usual).sum(-1) / valid.sum(-1), valid.sum(-1)


def inside(targets: AttentionTargets, offset: Tensor) -> Tensor:
    """Return whether a key exists at this offset (heads, 1) from each query: (heads, query)."""
    return (targets.places + offset >= 0) & (targets.places + offset < targets.keys)


def trials(targets: AttentionTargets, expected: Tensor) -> Trials:
    """expected (query, key): True for expected keys; queries without an expected key are skipped."""
    hits = expected[torch.arange(len(expected)), targets.at].sum(-1)  # (heads,)
    query, key = expected.nonzero(as_tuple=True)
    return Trials(hits, int(expected.any(-1).sum()), Counter((key - query - targets.shift).tolist()))


def merge_trials(several: Sequence[Trials]) -> Trials:
    """Merge a non-empty list of trials."""
    hits = torch.stack([one.hits for one in several]).sum(0)
    return Trials(hits, sum(one.cases for one in several), sum((one.offsets for one in several), Counter()))


class Measure(NamedTuple):
    """How well a head fits one role."""

    role: RoleName
    what: str  # the offset, or the relation and its direction; else empty
    value: float  # from 0 to 1
    baseline: float | None  # accuracy of the best fixed offset
    cases: int

    @property
    def holds(self) -> bool:
        """Whether the head has this role."""
        if self.cases < FEWEST:
            return False
        if self.baseline is None:
            return self.value >= NEARLY_ALWAYS - ROUNDING
        least = 0.0 if self.role == "syntactic" else MOSTLY
        return self.value >= max(self.baseline + ABOVE, least)

    @property
    def holds_mostly(self) -> bool:
        """Whether the head is mostly positional: at this offset for more than half of the tokens, but fewer than 90%."""
        return self.role == "positional" and not self.holds and self.cases >= FEWEST and self.value > MOSTLY


def measures_of_position(sentences: Sequence[AttentionTargets]) -> list[Measure]:
    """Return one measure per head."""
    columns = (column.tolist() for column in positional(sentences))
    rows = ((f"{offset:+d}" if offset else "itself", share, cases) for offset, share, cases in zip(*columns, strict=True))
    return [Measure("positional", what, share, None, cases) for what, share, cases in rows]


def measures_of_trials(role: RoleName, what: str, several: Sequence[Trials]) -> list[Measure]:
    """Return one measure per head."""
    total = merge_trials(several)
    return [Measure(role, what, value, total.baseline, total.cases) for value in total.accuracy.tolist()]
