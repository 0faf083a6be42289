"""From a model's predictions to hypotheses: one function, whatever the method.

    for name, hypotheses in search(query, config): …

A query says how to go on (`predict`), with what sources, and how far. Greedy search is a beam of one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from heedful.nn.decoder_state import States
from heedful.search.engine import Answer, Engines, Group, NonFiniteScores, Query, search
from heedful.search.hypothesis import Hypothesis, SearchConfig
from heedful.search.step_function import StepFunction, StepModel, ensemble, step_function


def limits_for(config: SearchConfig, source_lengths: Tensor, prefix_lengths: Tensor) -> Tensor:
    """(sources,) tokens that a hypothesis may have, the end counted."""
    longest = (source_lengths + config.max_extra).clamp(min=config.min_length, max=config.max_length)
    return torch.maximum(longest, prefix_lengths) + 1


def search_group(predict: StepFunction, group: Group, config: SearchConfig, *, start: int, end: int) -> list[list[Hypothesis]]:
    """For each source of one group its hypotheses, best first."""
    arriving = iter([group])
    query = Query(
        predict,
        lambda count, slots: next(arriving, None),
        start,
        end,
        capacity=len(group.limits),
        longest=int(group.limits.max()),
        prefix=max(map(len, group.prefixes)),
    )
    answers = dict(search(query, config))
    return [answers[name] for name in group.names]


__all__ = [
    "Answer",
    "Engines",
    "Group",
    "Hypothesis",
    "NonFiniteScores",
    "Query",
    "SearchConfig",
    "States",
    "StepFunction",
    "StepModel",
    "ensemble",
    "limits_for",
    "search",
    "search_group",
    "step_function",
]
