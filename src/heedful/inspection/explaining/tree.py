"""Beam search written out as a tree: every prefix that was considered, kept or not, and why it was not continued.

    total = sum_t log p(y_t | y_<t)            score = total / penalty(length)

At each step all kept prefixes are expanded, the expansions are ranked by their total, and as many are kept as the beam has
slots that no finished hypothesis occupies. This is the search of `heedful.search` without caches: the whole prefix is
decoded again for every token. Both return the same hypotheses with the same scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from heedful.errors import ConfigError
from heedful.search.hypothesis import Hypothesis, SearchConfig

NextTokenFn = Callable[[list[list[int]]], Tensor]  # prefixes of one length, start included -> log p of the next, (rows, vocab)
Status = Literal["kept", "finished", "rank", "length", "stopped"]

STATUSES: dict[Status, str] = {
    "kept": "expanded at the next step",
    "finished": "a complete hypothesis, which occupies a slot of the beam until the search ends",
    "rank": "not kept: its total is too low for the slots of the beam; each finished hypothesis occupies one",
    "length": "not allowed at this length: no end token before the minimum length, nothing but the end token at the maximum",
    "stopped": "early stopping: it can no longer exceed the score of the finished hypotheses",
}


class Node(NamedTuple):
    """A prefix: the parent's prefix and one more token."""

    token: int
    parent: int  # index of the parent node; -1: none
    length: int  # tokens without the start
    probability: float  # of its last token
    total: float  # log-probability of all its tokens
    score: float  # the score if the hypothesis ended here
    rank: int  # among the expansions of its step, from 1
    status: Status


class Tree(NamedTuple):
    nodes: Sequence[Node]  # parents before children
    words: Sequence[str]  # the last token of each
    best: Sequence[int]  # the nodes of the returned hypotheses, best first

    def children(self, of: int) -> list[int]:
        return [i for i, node in enumerate(self.nodes) if node.parent == of]

    @property
    def trunk(self) -> set[int]:
        """The nodes of the best hypothesis."""
        path, at = set(), self.best[0]
        while at >= 0:
            path.add(at)
            at = self.nodes[at].parent
        return path


def grow_tree(
    next_token: NextTokenFn, config: SearchConfig, limit: int, *, start: int, end: int
) -> tuple[list[Node], list[int]]:
    """Return all nodes and the indices of the hypotheses, best first. limit: the maximum length, end token included."""
    if config.method == "sample" or config.no_repeat:
        option = "samples" if config.method == "sample" else f"no_repeat = {config.no_repeat}"
        raise ConfigError(f"search with {option} has no tree to show; expected method 'beam' or 'greedy' without no_repeat")
    nodes = [Node(start, -1, 0, 1.0, 0.0, 0.0, 1, "kept")]
    active, finished = [0], list[int]()
    while active:
        logs = next_token([prefix_of(nodes, i) for i in active]).float().double().cpu()  # (active, vocab)
        slots = config.rows - len(finished)
        expansions = assign_status(expand(nodes, active, logs, config, end), slots, config, limit=limit, end=end)
        new = range(len(nodes), len(nodes) + len(expansions))
        nodes += expansions
        active = [i for i in new if nodes[i].status == "kept"]
        finished += [i for i in new if nodes[i].status == "finished"]
        if active and can_stop([nodes[i] for i in active], [nodes[i] for i in finished], config, limit):
            for i in active:
                nodes[i] = nodes[i]._replace(status="stopped")
            active = []
    return nodes, sorted(finished, key=lambda i: -nodes[i].score)[: config.n_best]


def expand(nodes: Sequence[Node], active: Sequence[int], logs: Tensor, config: SearchConfig, end: int) -> list[Node]:
    """The most probable expansions of each prefix and its end token, ranked among all expansions, best first.

    No other expansion can be kept. logs (active, vocab)."""
    totals = logs + torch.tensor([nodes[i].total for i in active], dtype=torch.float64)[:, None]  # (active, vocab)
    length = nodes[active[0]].length + 1
    expansions = []
    for parent, log_row, total_row in zip(active, logs, totals, strict=True):
        top = log_row.topk(min(2 * config.rows, len(log_row))).indices.tolist()
        for token in dict.fromkeys([*top, end]):
            total = float(total_row[token])
            if total > -math.inf:
                rank = int((totals > total).sum()) + 1
                score = total / config.length_penalty_fn(length)
                expansions.append(Node(token, parent, length, math.exp(log_row[token]), total, score, rank, "rank"))
    return sorted(expansions, key=lambda node: node.rank)


def assign_status(ranked: Sequence[Node], slots: int, config: SearchConfig, *, limit: int, end: int) -> list[Node]:
    """Set the status of the expansions to show: the first 2 x beam by rank, and the best one of each prefix."""
    allowed = [node for node in ranked if is_allowed(node.token == end, node.length, limit, config)]
    kept = allowed[:slots]
    best = {node.parent: node for node in reversed(ranked)}.values()
    shown = [node for node in ranked if node in kept or node in best or node.rank <= 2 * config.rows]

    def status(node: Node) -> Status:
        if node not in allowed:
            return "length"
        return "rank" if node not in kept else "finished" if node.token == end else "kept"

    return [node._replace(status=status(node)) for node in shown]


def is_allowed(ends: bool, length: int, limit: int, config: SearchConfig) -> bool:
    if length >= limit:
        return ends
    return not ends or length > config.min_length


def can_stop(active: Sequence[Node], finished: Sequence[Node], config: SearchConfig, limit: int) -> bool:
    """Whether no active prefix can still be returned: log-probabilities only fall, and the penalty is largest at the limit."""
    scores = sorted((node.score for node in finished), reverse=True)
    if len(scores) < config.n_best:
        return False
    return max(node.total for node in active) / config.length_penalty_fn(limit) <= scores[config.n_best - 1]


def prefix_of(nodes: Sequence[Node], at: int) -> list[int]:
    """The tokens of a node's prefix, start included."""
    tokens = []
    while at >= 0:
        tokens.append(nodes[at].token)
        at = nodes[at].parent
    return tokens[::-1]


def make_hypothesis(nodes: Sequence[Node], at: int) -> Hypothesis:
    return Hypothesis(prefix_of(nodes, at)[1:-1], nodes[at].score, nodes[at].total)
