"""A model that is a table: for every source and every beginning, how likely each token comes next. Small enough to try all.

Beginnings are numbered: the empty one is 0, and beginning b followed by token t is b x vocab + t + 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from heedful.nn.decoder_state import State, States
from heedful.search import Group, Hypothesis, SearchConfig, StepFunction, search_group
from heedful.search.hypothesis import Penalty

START, END = 99, 1


def random_tables(sources: int, vocab: int, limit: int, seed: int, spread: float = 1.5) -> Tensor:
    """Log-probabilities (sources, beginnings, vocab) for all beginnings shorter than the limit."""
    beginnings = sum(vocab**length for length in range(limit))
    logits = torch.randn(sources, beginnings, vocab, generator=torch.Generator().manual_seed(seed))
    return (spread * logits).log_softmax(-1)


def table_of(probabilities: dict[tuple[int, ...], list[float]], limit: int) -> Tensor:
    """One source: (1, beginnings, vocab). What is not said ends."""
    vocab = len(probabilities[()])
    table = torch.full((sum(vocab**length for length in range(limit)), vocab), 0.0)
    table[:, END] = 1.0
    for beginning, following in probabilities.items():
        table[number(beginning, vocab)] = torch.tensor(following)
    return table.log()[None]


def number(beginning: Sequence[int], vocab: int) -> int:
    index = 0
    for token in beginning:
        index = index * vocab + token + 1
    return index


def predict(tokens: Tensor, state: States) -> tuple[Tensor, States]:
    table: Tensor = state.memory  # (sources, beginnings, vocab)
    vocab, beam = table.shape[-1], len(tokens) // len(table)
    follows = state.row_state * vocab + tokens[:, -1] + 1
    index = torch.where(tokens[:, -1] == START, 0, follows).clamp(max=table.shape[1] - 1)
    source = torch.arange(len(table)).repeat_interleave(beam)
    return table[source, index], State(table, index)


def group(
    table: Tensor,
    limits: Sequence[int],
    names: Sequence[int] | None = None,
    prefixes: Sequence[Sequence[int]] | None = None,
) -> Group:
    names = range(len(table)) if names is None else names
    state = State(table, torch.zeros(len(table), dtype=torch.long))
    return Group(state, torch.tensor(limits), names, prefixes or [[]] * len(table))


def find(asked: Group, predict: StepFunction = predict, **options: Any) -> list[list[Hypothesis]]:
    """Search by `SearchConfig(**options)`."""
    return search_group(predict, asked, SearchConfig(**options), start=START, end=END)


def straight(asked: Group) -> list[Hypothesis]:
    """Greedy search."""
    return [best for (best,) in find(asked, method="greedy")]


def log_probability(table: Tensor, tokens: Sequence[int]) -> float:
    """Of the tokens and the end; table (beginnings, vocab)."""
    said = [*tokens, END]
    return sum(float(table[number(said[:time], table.shape[-1]), token]) for time, token in enumerate(said))


def exhaustive(table: Tensor, limit: int, penalty: Penalty) -> list[Hypothesis]:
    """Everything that can be said, best first; table (beginnings, vocab)."""
    complete: list[list[int]] = []
    growing: list[list[int]] = [[]]
    for _ in range(limit):
        complete += growing
        growing = [[*tokens, word] for tokens in growing for word in range(table.shape[-1]) if word != END]
    totals = [log_probability(table, tokens) for tokens in complete]
    found = [Hypothesis(t, total / penalty(len(t) + 1), total) for t, total in zip(complete, totals, strict=True)]
    return sorted(found, key=lambda hypothesis: hypothesis.score, reverse=True)
