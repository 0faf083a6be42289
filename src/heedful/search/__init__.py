"""From a model's predictions to hypotheses: beam search, greedy search (a beam of one) and sampling.

    for source_id, hypotheses in search(predict, sources, config, start=start, end=end): …

`predict` returns the logits of the next token; `sources` starts encoded sources in batches.
"""

from __future__ import annotations

from heedful.nn.decoder_state import States
from heedful.search.engine import (
    Engines,
    GraphInputs,
    NonFiniteScores,
    SearchResult,
    SourceBatch,
    Sources,
    search,
)
from heedful.search.hypothesis import Hypothesis, Sampling, SearchConfig
from heedful.search.step_function import StepFunction, ensemble, step_function


def length_limit(config: SearchConfig, source_length: int, prefix_length: int) -> int:
    """Maximum tokens of a hypothesis, the end token included."""
    longest = min(max(source_length + config.max_extra, config.min_length), config.max_length)
    return max(longest, prefix_length) + 1


def search_batch(
    predict: StepFunction, batch: SourceBatch, config: SearchConfig, *, start: int, end: int
) -> list[list[Hypothesis]]:
    """The hypotheses of each source of one batch, best first."""
    batches = iter([batch])
    sources = Sources(
        lambda count, slots: next(batches, None),
        capacity=len(batch.limits),
        max_limit=int(batch.limits.max()),
        max_prefix=max(map(len, batch.prefixes)),
    )
    results = dict(search(predict, sources, config, start=start, end=end))
    return [results[source_id] for source_id in batch.source_ids]


__all__ = [
    "Engines",
    "GraphInputs",
    "Hypothesis",
    "NonFiniteScores",
    "Sampling",
    "SearchConfig",
    "SearchResult",
    "SourceBatch",
    "Sources",
    "States",
    "StepFunction",
    "ensemble",
    "length_limit",
    "search",
    "search_batch",
    "step_function",
]
