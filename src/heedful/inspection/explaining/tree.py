"""Beam search written out: every beginning that was looked at, kept or not, and why it went no further.

    total = sum_t log p(y_t | y_<t)            score = total / penalty(length)

At each step the beginnings that live are continued, all continuations are ranked by their total, and as many are kept as
the beam has places that no finished hypothesis holds. It is the search of `heedful.search` told again, slowly, without
caches: the beginning is read anew for every token. Both find the same hypotheses with the same scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from heedful.errors import ConfigError
from heedful.search.hypothesis import Hypothesis, SearchConfig

Say = Callable[[list[list[int]]], Tensor]  # beginnings of one length, start included -> log p of what comes next, (rows, vocab)
Fate = Literal["kept", "ended", "rank", "length", "overtaken"]

FATES: dict[Fate, str] = {
    "kept": "goes on",
    "ended": "a hypothesis: it holds its place in the beam and waits to be compared",
    "rank": "others of this step have a larger total, and the beam has no more places: each that has ended keeps one",
    "length": "its length forbids it: no end before the least length, nothing but the end at the limit",
    "overtaken": "what has ended is better than it can still become",
}


class Node(NamedTuple):
    """A beginning: that of its parent, and one token more."""

    token: int
    parent: int  # its place among the nodes; -1: none
    length: int  # tokens without the start
    probability: float  # of its last token
    total: float  # log-probability of all its tokens
    score: float  # what it would be worth if it ended here
    rank: int  # among the continuations of its step, from 1
    fate: Fate


class Tree(NamedTuple):
    nodes: Sequence[Node]  # parents before children
    words: Sequence[str]  # the last token of each
    best: Sequence[int]  # the nodes of the hypotheses that were found, best first

    def children(self, of: int) -> list[int]:
        return [i for i, node in enumerate(self.nodes) if node.parent == of]

    @property
    def trunk(self) -> set[int]:
        """The nodes on the way to the best hypothesis."""
        found, at = set(), self.best[0]
        while at >= 0:
            found.add(at)
            at = self.nodes[at].parent
        return found


def grow(say: Say, config: SearchConfig, limit: int, *, start: int, end: int) -> tuple[list[Node], list[int]]:
    """All nodes, and which of them are the hypotheses, best first; limit: tokens, the end counted."""
    if config.method == "sample" or config.no_repeat:
        given = "samples" if config.method == "sample" else f"no_repeat = {config.no_repeat}"
        raise ConfigError(f"search with {given} has no tree to show; expected method 'beam' or 'greedy' without no_repeat")
    nodes = [Node(start, -1, 0, 1.0, 0.0, 0.0, 1, "kept")]
    living, found = [0], list[int]()
    while living:
        logs = say([tokens_of(nodes, i) for i in living]).float().double().cpu()  # (living, vocab)
        places = config.rows - len(found)
        judged = decide_fates(continued(nodes, living, logs, config, end), places, config, limit=limit, end=end)
        new = range(len(nodes), len(nodes) + len(judged))
        nodes += judged
        living = [i for i in new if nodes[i].fate == "kept"]
        found += [i for i in new if nodes[i].fate == "ended"]
        if living and hopeless([nodes[i] for i in living], [nodes[i] for i in found], config, limit):
            for i in living:
                nodes[i] = nodes[i]._replace(fate="overtaken")
            living = []
    return nodes, sorted(found, key=lambda i: -nodes[i].score)[: config.n_best]


def continued(nodes: Sequence[Node], living: Sequence[int], logs: Tensor, config: SearchConfig, end: int) -> list[Node]:
    """The likeliest continuations of each beginning, and its end: no other can be kept. Ranked among all there are, best first.

    logs (living, vocab)."""
    totals = logs + torch.tensor([nodes[i].total for i in living], dtype=torch.float64)[:, None]  # (living, vocab)
    length = nodes[living[0]].length + 1
    found = []
    for parent, row, whole in zip(living, logs, totals, strict=True):
        likeliest = row.topk(min(2 * config.rows, len(row))).indices.tolist()
        for token in dict.fromkeys([*likeliest, end]):
            total = float(whole[token])
            if total > -math.inf:
                rank = int((totals > total).sum()) + 1
                score = total / config.length_penalty_fn(length)
                found.append(Node(token, parent, length, math.exp(row[token]), total, score, rank, "rank"))
    return sorted(found, key=lambda node: node.rank)


def decide_fates(ranked: Sequence[Node], places: int, config: SearchConfig, *, limit: int, end: int) -> list[Node]:
    """What becomes of each. As many again are shown as the beam holds, and the best of each beginning: why it ends there."""
    allowed = [node for node in ranked if may_be(node.token == end, node.length, limit, config)]
    kept = allowed[:places]
    best = {node.parent: node for node in reversed(ranked)}.values()
    shown = [node for node in ranked if node in kept or node in best or node.rank <= 2 * config.rows]

    def fate(node: Node) -> Fate:
        if node not in allowed:
            return "length"
        return "rank" if node not in kept else "ended" if node.token == end else "kept"

    return [node._replace(fate=fate(node)) for node in shown]


def may_be(ends: bool, length: int, limit: int, config: SearchConfig) -> bool:
    if length >= limit:
        return ends
    return not ends or length > config.min_length


def hopeless(living: Sequence[Node], found: Sequence[Node], config: SearchConfig, limit: int) -> bool:
    """Log-probabilities only fall, and the penalty of the limit is the largest there is: can none still be returned?"""
    scores = sorted((node.score for node in found), reverse=True)
    if len(scores) < config.n_best:
        return False
    return max(node.total for node in living) / config.length_penalty_fn(limit) <= scores[config.n_best - 1]


def tokens_of(nodes: Sequence[Node], at: int) -> list[int]:
    """The beginning of a node, start included."""
    tokens = []
    while at >= 0:
        tokens.append(nodes[at].token)
        at = nodes[at].parent
    return tokens[::-1]


def hypothesis(nodes: Sequence[Node], at: int) -> Hypothesis:
    return Hypothesis(tokens_of(nodes, at)[1:-1], nodes[at].score, nodes[at].total)
