"""A model given by a table of next-token probabilities for every source and every prefix, small enough for exhaustive search.

Prefixes are numbered: the empty one is 0, and prefix p followed by token t is p x vocab + t + 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from heedful.nn.decoder_state import State, States
from heedful.search import Hypothesis, SearchConfig, SourceBatch, StepFunction, search_batch
from heedful.search.hypothesis import Penalty

START, END = 99, 1


def random_tables(sources: int, vocab: int, limit: int, seed: int, spread: float = 1.5) -> Tensor:
    """Log-probabilities (sources, prefixes, vocab) for all prefixes shorter than the limit."""
    prefixes = sum(vocab**length for length in range(limit))
    logits = torch.randn(sources, prefixes, vocab, generator=torch.Generator().manual_seed(seed))
    return (spread * logits).log_softmax(-1)


def table_of(probabilities: dict[tuple[int, ...], list[float]], limit: int) -> Tensor:
    """The table of one source, (1, prefixes, vocab); after prefixes that are not listed comes the end token."""
    vocab = len(probabilities[()])
    table = torch.full((sum(vocab**length for length in range(limit)), vocab), 0.0)
    table[:, END] = 1.0
    for prefix, following in probabilities.items():
        table[number(prefix, vocab)] = torch.tensor(following)
    return table.log()[None]


def number(prefix: Sequence[int], vocab: int) -> int:
    """The number of a prefix."""
    index = 0
    for token in prefix:
        index = index * vocab + token + 1
    return index


def predict(tokens: Tensor, state: States) -> tuple[Tensor, States]:
    """The step function of a table."""
    table: Tensor = state.memory  # (sources, prefixes, vocab)
    vocab, beam = table.shape[-1], len(tokens) // len(table)
    follows = state.row_state * vocab + tokens[:, -1] + 1
    index = torch.where(tokens[:, -1] == START, 0, follows).clamp(max=table.shape[1] - 1)
    source = torch.arange(len(table)).repeat_interleave(beam)
    return table[source, index], State(table, index)


def batch_of(
    table: Tensor,
    limits: Sequence[int],
    source_ids: Sequence[int] | None = None,
    prefixes: Sequence[Sequence[int]] | None = None,
) -> SourceBatch:
    source_ids = range(len(table)) if source_ids is None else source_ids
    state = State(table, torch.zeros(len(table), dtype=torch.long))
    return SourceBatch(state, torch.tensor(limits), source_ids, prefixes or [[]] * len(table))


def run_search(batch: SourceBatch, predict: StepFunction = predict, **options: Any) -> list[list[Hypothesis]]:
    """Search with `SearchConfig(**options)`."""
    return search_batch(predict, batch, SearchConfig(**options), start=START, end=END)


def greedy_search(batch: SourceBatch) -> list[Hypothesis]:
    return [best for (best,) in run_search(batch, method="greedy")]


def log_probability(table: Tensor, tokens: Sequence[int]) -> float:
    """Of the tokens and the end token; table (prefixes, vocab)."""
    path = [*tokens, END]
    return sum(float(table[number(path[:time], table.shape[-1]), token]) for time, token in enumerate(path))


def exhaustive(table: Tensor, limit: int, penalty: Penalty) -> list[Hypothesis]:
    """All hypotheses of at most `limit` tokens, best first; table (prefixes, vocab)."""
    complete: list[list[int]] = []
    prefixes: list[list[int]] = [[]]
    for _ in range(limit):
        complete += prefixes
        prefixes = [[*tokens, word] for tokens in prefixes for word in range(table.shape[-1]) if word != END]
    totals = [log_probability(table, tokens) for tokens in complete]
    hypotheses = [Hypothesis(t, total / penalty(len(t) + 1), total) for t, total in zip(complete, totals, strict=True)]
    return sorted(hypotheses, key=lambda hypothesis: hypothesis.score, reverse=True)
