"""From soft alignments to links, and the choice of heads and thresholds that gives the best ones.

    w (target words, source words), a mean over chosen heads.      t, s are linked where
        w_ts >= row    * max_s w_ts       the target word looked at s nearly as much as at its favorite, and
        w_ts >= column * max_t w_ts       the source word was looked at by t nearly as much as by its greatest admirer;
    a word left without a link may take its favorite all the same: cover.

row = 1 and column = 0 is the usual rule, one source word for every target word; it cannot link one target word with two
source words. Everything is chosen on sentences with gold alignments, by their error rate (Och & Ney, 2003), and must then
be judged on others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from heedful.evaluation.word_alignment import Alignment, Link

Cover = Literal["none", "target", "both"]
COVERS: tuple[Cover, ...] = ("none", "target", "both")
SHARES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0)


class LinkRule(NamedTuple):
    row: float = 1.0  # of the target word's largest weight
    column: float = 0.0  # of the source word's largest weight
    cover: Cover = "none"  # whose words are never left without a link


LINK_RULES = [LinkRule(*one) for one in product(SHARES, (0.0, *SHARES), COVERS)]


def link_matrix(weights: Tensor, linking: LinkRule) -> Tensor:
    """(…, target words, source words) -> likewise, True where there is a link. Where a weight is 0 there is none."""
    if not weights.numel():  # a side without words
        return weights > 0
    by_target, by_source = weights.amax(-1, keepdim=True), weights.amax(-2, keepdim=True)
    found = (weights >= linking.row * by_target) & (weights >= linking.column * by_source) & (weights > 0)
    if linking.cover != "none":
        found |= (weights >= by_target) & (weights > 0) & ~found.any(-1, keepdim=True)
    if linking.cover == "both":
        found |= (weights >= by_source) & (weights > 0) & ~found.any(-2, keepdim=True)
    return found


def links(weights: Tensor, linking: LinkRule = LinkRule()) -> set[Link]:  # noqa: B008
    """(target words, source words) -> {(source, target)}; unless told otherwise every target word takes the source word
    that it looked at most."""
    return {(source, target) for target, source in link_matrix(weights, linking).nonzero().tolist()}


class LabeledMaps(NamedTuple):
    """Soft alignments of sentences with gold links, made one tensor so that thousands of choices can be compared."""

    maps: Tensor  # (sentences, heads, target words, source words), 0 beyond a sentence's words
    sure: Tensor  # (sentences, target words, source words)
    possible: Tensor  # likewise

    def error_rate(self, heads: Sequence[int], linking: LinkRule) -> float:
        """Of the links that the mean over these heads gives."""
        found = link_matrix(self.maps[:, list(heads)].mean(1), linking)
        agreed = (found & self.sure).sum() + (found & self.possible).sum()
        count = found.sum() + self.sure.sum()
        return 1 - float(agreed / count) if count else 0.0


def label_maps(maps: Sequence[Tensor], gold: Sequence[Alignment]) -> LabeledMaps:
    """maps: for each sentence (heads, target words, source words)."""
    target, source = max(one.shape[1] for one in maps), max(one.shape[2] for one in maps)
    padded = maps[0].new_zeros(len(maps), len(maps[0]), target, source)
    for place, one in zip(padded, maps, strict=True):
        place[:, : one.shape[1], : one.shape[2]] = one
    marks = torch.zeros(2, len(maps), target, source, dtype=torch.bool)
    for row, line in enumerate(gold):
        for mark, found in zip(marks, (line.sure, line.possible), strict=True):
            for s, t in found:
                mark[row, t, s] = True
    return LabeledMaps(padded.cpu(), *marks)


def grow(judge: LabeledMaps, linking: LinkRule) -> tuple[list[int], float]:
    """The set of heads whose mean aligns best, grown one by one as long as the error rate falls, and that rate."""
    chosen: list[int] = []
    lowest = math.inf
    while rest := [head for head in range(judge.maps.shape[1]) if head not in chosen]:
        error, head = min((judge.error_rate([*chosen, head], linking), head) for head in rest)
        if error >= lowest:
            break
        lowest, chosen = error, [*chosen, head]
    return chosen, lowest


def choose_link_rule(
    judge: LabeledMaps, heads: Sequence[int], linkings: Iterable[LinkRule] = LINK_RULES
) -> tuple[LinkRule, float]:
    """The thresholds that suit these heads best; of equals the first."""
    found = [(judge.error_rate(heads, linking), linking) for linking in linkings]
    error, linking = min(found, key=lambda one: one[0])
    return linking, error


def choose(judge: LabeledMaps) -> tuple[list[int], LinkRule, float]:
    """Heads and thresholds in turns, each the best for the other, until neither lowers the error rate."""
    linking = LinkRule()
    heads, lowest = grow(judge, linking)
    while True:
        linking, error = choose_link_rule(judge, heads)
        others, rate = grow(judge, linking)
        heads = others if rate < error else heads
        if min(error, rate) >= lowest:
            return heads, linking, min(error, rate)
        lowest = min(error, rate)
