"""Word links from soft alignments, and the selection of heads and thresholds with the lowest error rate.

    w (target words, source words), the mean over the selected heads.      t, s are linked where
        w_ts >= row    * max_s w_ts       s is close to the largest weight of target word t, and
        w_ts >= column * max_t w_ts       t is close to the largest weight of source word s;
    `cover`: words without a link are linked to the word of their largest weight.

row = 1 and column = 0 is the usual argmax rule, one source word for every target word; it cannot link one target word with two
source words. Heads and thresholds are selected on sentences with gold alignments by alignment error rate (Och & Ney, 2003);
evaluate them on other sentences.
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
THRESHOLDS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0)


class LinkRule(NamedTuple):
    row: float = 1.0  # share of the target word's largest weight
    column: float = 0.0  # share of the source word's largest weight
    cover: Cover = "none"  # which words always get a link


LINK_RULES = [LinkRule(*values) for values in product(THRESHOLDS, (0.0, *THRESHOLDS), COVERS)]


def link_matrix(weights: Tensor, rule: LinkRule) -> Tensor:
    """(…, target words, source words) -> same shape, True where there is a link. A weight of 0 is never a link."""
    if not weights.numel():  # a side without words
        return weights > 0
    by_target, by_source = weights.amax(-1, keepdim=True), weights.amax(-2, keepdim=True)
    linked = (weights >= rule.row * by_target) & (weights >= rule.column * by_source) & (weights > 0)
    if rule.cover != "none":
        linked |= (weights >= by_target) & (weights > 0) & ~linked.any(-1, keepdim=True)
    if rule.cover == "both":
        linked |= (weights >= by_source) & (weights > 0) & ~linked.any(-2, keepdim=True)
    return linked


def links(weights: Tensor, rule: LinkRule = LinkRule()) -> set[Link]:  # noqa: B008
    """(target words, source words) -> {(source, target)}; the default rule links every target word to the source word of its
    largest weight."""
    return {(source, target) for target, source in link_matrix(weights, rule).nonzero().tolist()}


class LabeledMaps(NamedTuple):
    """Soft alignments of sentences with gold links, padded into one tensor to compare thousands of rules quickly."""

    maps: Tensor  # (sentences, heads, target words, source words), 0 beyond a sentence's words
    sure: Tensor  # (sentences, target words, source words)
    possible: Tensor  # same shape

    def error_rate(self, heads: Sequence[int], rule: LinkRule) -> float:
        """Return the error rate of the links from the mean over these heads."""
        linked = link_matrix(self.maps[:, list(heads)].mean(1), rule)
        matches = (linked & self.sure).sum() + (linked & self.possible).sum()
        count = linked.sum() + self.sure.sum()
        return 1 - float(matches / count) if count else 0.0


def label_maps(maps: Sequence[Tensor], gold: Sequence[Alignment]) -> LabeledMaps:
    """maps: for each sentence (heads, target words, source words)."""
    target, source = max(weights.shape[1] for weights in maps), max(weights.shape[2] for weights in maps)
    padded = maps[0].new_zeros(len(maps), len(maps[0]), target, source)
    for row, weights in zip(padded, maps, strict=True):
        row[:, : weights.shape[1], : weights.shape[2]] = weights
    marks = torch.zeros(2, len(maps), target, source, dtype=torch.bool)
    for sentence, alignment in enumerate(gold):
        for mark, pairs in zip(marks, (alignment.sure, alignment.possible), strict=True):
            for s, t in pairs:
                mark[sentence, t, s] = True
    return LabeledMaps(padded.cpu(), *marks)


def select_heads(labeled: LabeledMaps, rule: LinkRule) -> tuple[list[int], float]:
    """Return the heads whose mean aligns best, added greedily while the error rate falls, and that rate."""
    selected: list[int] = []
    lowest = math.inf
    while rest := [head for head in range(labeled.maps.shape[1]) if head not in selected]:
        error, head = min((labeled.error_rate([*selected, head], rule), head) for head in rest)
        if error >= lowest:
            break
        lowest, selected = error, [*selected, head]
    return selected, lowest


def choose_link_rule(
    labeled: LabeledMaps, heads: Sequence[int], rules: Iterable[LinkRule] = LINK_RULES
) -> tuple[LinkRule, float]:
    """Return the rule with the lowest error rate for these heads (the first of equals), and that rate."""
    rates = [(labeled.error_rate(heads, rule), rule) for rule in rules]
    error, rule = min(rates, key=lambda pair: pair[0])
    return rule, error


def choose_heads_and_rule(labeled: LabeledMaps) -> tuple[list[int], LinkRule, float]:
    """Optimize heads and rule in alternation until neither lowers the error rate; return both and the rate."""
    rule = LinkRule()
    heads, lowest = select_heads(labeled, rule)
    while True:
        rule, error = choose_link_rule(labeled, heads)
        others, rate = select_heads(labeled, rule)
        heads = others if rate < error else heads
        if min(error, rate) >= lowest:
            return heads, rule, min(error, rate)
        lowest = min(error, rate)
