"""The state of beam search for a batch of sources: tensors only, updated in place, so that a step can be captured.

A source that is done keeps its batch index until its hypotheses are collected; then another source may be inserted there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from heedful.search.hypothesis import Hypothesis, Sampling, SearchConfig


@dataclass
class Frontier:
    """Active (unfinished) and finished hypotheses of each source. All active ones of a source have the same length."""

    scores: Tensor  # (sources, beam) log-probability of each active hypothesis; -inf: there is none
    tokens: Tensor  # (sources, beam, longest) of the active hypotheses
    count: Tensor  # (sources,) number of tokens of an active hypothesis
    limits: Tensor  # (sources,) maximum tokens, the end token included; the last one must be the end token
    prefix: Tensor  # (sources, longest prefix) forced first tokens
    prefix_length: Tensor  # (sources,)
    uniforms: Tensor  # (sources, beam, longest) random numbers in [0, 1) for sampling
    temperature: Tensor  # (sources,) of sampling; 0: always the most probable token
    top_k: Tensor  # (sources,) 0: all tokens
    top_p: Tensor  # (sources,)
    finished: Tensor  # (sources,) number of finished hypotheses
    finished_scores: Tensor  # (sources, beam + 1); NaN: the logits were not finite; the last column is discarded
    finished_log_probability: Tensor  # (sources, beam + 1)
    finished_length: Tensor  # (sources, beam + 1) tokens, the end token not included
    finished_tokens: Tensor  # (sources, beam + 1, longest)
    last_token: Tensor  # (sources, beam)
    done: Tensor  # (sources,) no active hypothesis can become one of the n best

    def tensors(self) -> list[Tensor]:
        return [getattr(self, field.name) for field in fields(self)]


def empty_frontier(sources: int, longest: int, prefix: int, config: SearchConfig, device: torch.device) -> Frontier:
    """A frontier for this many sources, all of them done."""

    def full(value: float, *shape: int, dtype: torch.dtype = torch.long) -> Tensor:
        return torch.full((sources, *shape), value, dtype=dtype, device=device)

    beam, real = config.rows, torch.float32
    return Frontier(
        scores=full(-math.inf, beam, dtype=real),
        tokens=full(0, beam, longest),
        count=full(0),
        limits=full(1),
        prefix=full(0, prefix),
        prefix_length=full(0),
        uniforms=full(0.0, beam, longest if config.method == "sample" else 0, dtype=real),
        temperature=full(1.0, dtype=real),
        top_k=full(0),
        top_p=full(1.0, dtype=real),
        finished=full(0),
        finished_scores=full(-math.inf, beam + 1, dtype=real),
        finished_log_probability=full(0.0, beam + 1, dtype=real),
        finished_length=full(0, beam + 1),
        finished_tokens=full(0, beam + 1, longest),
        last_token=full(0, beam),
        done=full(True, dtype=torch.bool),
    )


NewSources = dict[str, Tensor]  # tensors of sources to insert, by the names of a frontier's fields


def start_sources(
    config: SearchConfig,
    limits: Tensor,
    samplings: Sequence[Sampling],
    prefixes: Sequence[Sequence[int]],
    starts: Sequence[int],
    longest: int,
) -> NewSources:
    """Build the fields of a frontier for new sources; those not listed are filled by `insert`. starts: the first input of the
    decoder for each source."""
    count, beam, device = len(limits), config.rows, limits.device
    scores = torch.zeros(count, beam, device=device)
    if config.method == "beam":
        scores[:, 1:] = -math.inf  # all rows start alike: expand only the first one
    longest_prefix = max(map(len, prefixes), default=0)
    padded = torch.tensor([[*prefix, *[0] * (longest_prefix - len(prefix))] for prefix in prefixes], dtype=torch.long)
    new = {
        "scores": scores,
        "limits": limits,
        "prefix": padded.to(device),
        "prefix_length": torch.tensor([len(prefix) for prefix in prefixes], device=device),
        "last_token": torch.tensor(starts, device=device)[:, None].expand(-1, beam),
    }
    if config.method == "sample":
        rows = [uniform(one.seed, one.stream * beam + k, longest) for one in samplings for k in range(beam)]
        new["uniforms"] = torch.stack(rows).view(count, beam, -1).to(device)
        new["temperature"] = torch.tensor([one.temperature for one in samplings], device=device)
        new["top_k"] = torch.tensor([one.top_k for one in samplings], device=device)
        new["top_p"] = torch.tensor([one.top_p for one in samplings], device=device)
    return new


def insert(frontier: Frontier, new: NewSources, indices: Tensor) -> None:
    """Insert new sources at these batch indices, without tokens or finished hypotheses."""
    initial = {"count": 0, "finished": 0, "finished_scores": -math.inf, "done": False}
    for name, value in initial.items():
        getattr(frontier, name).index_fill_(0, indices, value)
    for name, given in new.items():
        own: Tensor = getattr(frontier, name)
        missing = own.shape[-1] - given.shape[-1] if own.dim() > 1 else 0
        own.index_copy_(0, indices, functional.pad(given, (0, missing)) if missing else given)


def keep_sources(frontier: Frontier, sources: Tensor) -> Frontier:
    """The frontier of these sources only."""
    return Frontier(*(tensor.index_select(0, sources) for tensor in frontier.tensors()))


def join_frontiers(first: Frontier, second: Frontier) -> Frontier:
    """The sources of both, whose shapes are otherwise the same."""
    return Frontier(*(torch.cat(both) for both in zip(first.tensors(), second.tensors(), strict=True)))


def nonfinite_sources(frontier: Frontier, normalize: Tensor) -> Tensor:
    """(sources, 1): where the log-sum-exp of an active row's logits, (rows,), is not finite, so that no score is."""
    active = frontier.scores > -math.inf
    return (active & ~normalize.view_as(active).isfinite()).any(1, keepdim=True)


def record_finished(
    frontier: Frontier, scores: Tensor, row: Tensor, token: Tensor, index: Tensor, penalty: Tensor, n_best: int
) -> None:
    """Append `token` to the hypotheses of `row`, and store those that have ended with the finished ones.

    scores, row, token (sources, beam); index (sources, beam): where each hypothesis is stored among the finished ones, `beam`
    if it has not ended; penalty (longest + 1,) for each length. NaN scores end the search of their source and invalidate its
    finished hypotheses."""
    ended = index < scores.shape[1]
    parents = frontier.tokens.gather(1, row[..., None].expand_as(frontier.tokens))  # (sources, beam, longest)
    length = frontier.count + 1  # (sources,) the end token included
    penalized = scores / penalty[length][:, None]
    frontier.finished_scores.scatter_(1, index, penalized)
    frontier.finished_scores[:, -1].fill_(-math.inf)
    frontier.finished_log_probability.scatter_(1, index, scores)
    frontier.finished_length.scatter_(1, index, frontier.count[:, None].expand_as(index))
    frontier.finished_tokens.scatter_(1, index[..., None].expand_as(parents), parents)
    frontier.finished += ended.sum(1)
    active = scores.masked_fill(ended, -math.inf)
    frontier.finished_scores.masked_fill_(scores.isnan().any(1, keepdim=True), math.nan)
    threshold = frontier.finished_scores.topk(n_best).values[:, -1]  # (sources,) score of the n-th best
    best = active.max(1).values
    # Log-probabilities only decrease, and the penalty at the limit is the largest, so this bounds every continuation.
    frontier.done |= ~((best > -math.inf) & (best / penalty[frontier.limits] > threshold))
    at = frontier.count.clamp(max=parents.shape[-1] - 1)[:, None, None].expand(*token.shape, 1)
    frontier.tokens.copy_(parents.scatter_(-1, at, token[..., None]))
    frontier.scores.copy_(active.masked_fill(frontier.done[:, None], -math.inf))
    frontier.last_token.copy_(token)
    frontier.count += ~frontier.done


def collect_hypotheses(frontier: Frontier, sources: Sequence[int], config: SearchConfig) -> list[list[Hypothesis]]:
    """The hypotheses of sources that are done: best first, or samples in the order of their random numbers.

    Empty for a source whose scores were not finite."""
    indices = torch.tensor(sources, device=frontier.finished.device)
    scores = frontier.finished_scores.index_select(0, indices)
    if config.method == "sample":
        chosen = torch.arange(config.n_best, device=indices.device).expand(len(sources), -1)
    else:
        chosen = scores.topk(config.n_best).indices  # (sources, n_best)
    penalized, totals, lengths = (
        tensor.gather(1, chosen).tolist()
        for tensor in (
            scores,
            frontier.finished_log_probability.index_select(0, indices),
            frontier.finished_length.index_select(0, indices),
        )
    )
    finished = frontier.finished_tokens.index_select(0, indices)
    tokens = finished.gather(1, chosen[..., None].expand(-1, -1, finished.shape[-1])).tolist()
    penalty = config.length_penalty_fn
    return [
        [
            Hypothesis(tokens[i][k][:length], totals[i][k] / penalty(length + 1), totals[i][k])
            for k, length in enumerate(lengths[i])
            if penalized[i][k] > -math.inf
        ]
        for i in range(len(sources))
    ]


def uniform(seed: int, source: int, count: int) -> Tensor:
    """Random numbers in [0, 1) of one source; every (seed, source) has a stream of its own."""
    key = [seed, source % 2**64]
    return torch.from_numpy(np.random.Generator(np.random.Philox(key=key)).random(count, dtype=np.float32))
