"""From a model's predictions to hypotheses: one function, whatever the method.

    search(query, config) -> for each source its hypotheses, best first

A query says how to go on (`predict`), from which states, and how far.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from heedful.nn.rows import States, each_state, select_sources
from heedful.search.beam import beam_search
from heedful.search.follow import greedy, sample
from heedful.search.hypothesis import PENALTIES, Hypothesis, Query, SearchConfig
from heedful.search.predict import (
    Predict,
    Steps,
    at_least,
    counting,
    ensemble,
    forced,
    predictor,
    prefixed,
    remembering,
    without_repeats,
)


def limits_for(config: SearchConfig, source_lengths: Tensor, prefix_lengths: Tensor) -> Tensor:
    """(sources,) tokens that a hypothesis may have, the end counted."""
    longest = (source_lengths + config.max_extra).clamp(min=config.min_length, max=config.max_length)
    return torch.maximum(longest, prefix_lengths) + 1


def search(query: Query, config: SearchConfig, prefixes: Sequence[Sequence[int]] | None = None) -> list[list[Hypothesis]]:
    """For each source its hypotheses, best first, by the configured method and constraints."""
    predict, states = query.predict, query.states
    if prefixes is not None and any(prefixes):  # innermost: what must be said comes before what should be
        predict, states = forced(predict), prefixed(states, prefixes, query.limits.device)
    if config.no_repeat:
        predict, states = without_repeats(predict, config.no_repeat), remembering(states)
    if config.min_length:
        predict, states = at_least(predict, config.min_length, query.end), counting(states)
    query = query._replace(predict=predict, states=states)
    if config.method == "beam":
        penalty = PENALTIES[config.penalty](config.length_penalty)
        return beam_search(query, beam=config.beam, penalty=penalty, n_best=config.n_best)
    if config.method == "greedy":
        return [[hypothesis] for hypothesis in greedy(query)]
    return samples(query, config)


def samples(query: Query, config: SearchConfig) -> list[list[Hypothesis]]:
    """n_best independent draws for each source."""
    sources = torch.arange(len(query.limits), device=query.limits.device).repeat_interleave(config.n_best)
    many = query._replace(
        states=select_sources(query.states, sources, beam=1),
        limits=query.limits[sources],
        names=[name * config.n_best + k for name in query.names for k in range(config.n_best)],
    )
    drawn = sample(many, temperature=config.temperature, top_k=config.top_k, top_p=config.top_p, seed=config.seed)
    return [drawn[i : i + config.n_best] for i in range(0, len(drawn), config.n_best)]


__all__ = [
    "Hypothesis",
    "Predict",
    "Query",
    "SearchConfig",
    "States",
    "Steps",
    "beam_search",
    "each_state",
    "ensemble",
    "greedy",
    "limits_for",
    "predictor",
    "sample",
    "search",
]
