"""Sequence-level training: sample translations, compare them with the reference, and raise the probability of the better ones.
Maximum likelihood training never conditions on the model's own output; this does.

    minimize   ml_weight * cross-entropy + sum over sources of a loss of `nn/sequence_losses.py`,  reward r = GLEU

Both are sums over sentences, divided by the number of target tokens of the batch as every loss here is. Candidates are
sampled with the search that also translates, without dropout, and then scored by the model in training mode; the source is
encoded once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn import functional

from heedful.config.base import Config, NonNegativeNumber, PositiveNumber, ZeroOrSize, refuse_unused
from heedful.config.bounds import MAX_BEAM
from heedful.evaluation.gleu import count_ngrams, gleu_from_counts
from heedful.nn.decoder_state import select_sources
from heedful.nn.losses import Loss
from heedful.nn.model import SequenceModel, inference_context
from heedful.nn.sequence_losses import reward_loss, risk_loss
from heedful.search import SearchConfig, SourceBatch, search_batch, step_function
from heedful.tasks.batches import Batch, pad
from heedful.text.specials import Specials
from heedful.training.update import Objective

ML_WEIGHT = {"none": 1.0, "reward": 0.017, "risk": 0.0}  # as published

Samples = Annotated[int, Field(ge=2, le=MAX_BEAM)]


class SequenceConfig(Config):
    """Sequence-level training on sampled translations; start from a trained model (`training.init`)."""

    method: Literal["none", "reward", "risk"] = "none"
    """Sequence-level training: none, expected reward or minimum risk."""
    samples: Samples = 15
    """Translations sampled for each source."""
    ml_weight: NonNegativeNumber | None = None
    """Weight of the cross-entropy loss; default: 0.017 with reward, 0 with risk."""
    alpha: PositiveNumber = 0.005
    """Sharpness of the distribution over candidates; 1: unchanged."""
    reference: bool = True
    """Add the reference to the candidates."""
    max_extra: ZeroOrSize = 10
    """Maximum tokens of a sample beyond the length of the reference."""

    @property
    def cross_entropy_weight(self) -> float:
        """The weight of the cross-entropy loss."""
        return ML_WEIGHT[self.method] if self.ml_weight is None else self.ml_weight

    @model_validator(mode="after")
    def _fits_together(self) -> SequenceConfig:
        why = f"task.sequence.method is {self.method!r}"
        no_effect = {"none": [name for name in type(self).model_fields if name != "method"], "reward": ["alpha", "reference"]}
        refuse_unused(self, dict.fromkeys(no_effect.get(self.method, ()), why))
        return self


SourceTensors = tuple[Tensor, Tensor | None]  # (sources, time) ids and their mask; None: nothing is padded
Sentences = Sequence[Sequence[list[int]]]  # for each source, ids without start and end


class Candidates(NamedTuple):
    """The distinct candidate translations of each source, with their rewards."""

    sentences: Sentences
    limits: list[int]  # maximum tokens of each source's candidates, the end token included
    rewards: Tensor  # (sources, candidates); 0 where there is none
    times: Tensor  # (sources, candidates) how often each was sampled


def sequence_objective(
    objective: Objective, model: SequenceModel, batch: Batch, specials: Specials, config: SequenceConfig
) -> Objective:
    """Add the sequence-level loss to an objective that is already weighted."""
    kept = (batch.target_out != specials.pad).any(1).nonzero().squeeze(1)  # rows added to fill the batch have no target
    if not len(kept):
        return objective
    sources = batch.source[kept], None if batch.source_mask is None else batch.source_mask[kept]
    references = [row[: row.index(specials.end)] for row in batch.target_out[kept].tolist()]
    candidates = sample_candidates(model, sources, references, specials, config)
    scores = log_probabilities(model, sources, candidates.sentences, candidates.limits, specials)  # (sources, candidates)
    if config.method == "reward":
        losses = reward_loss(scores, candidates.rewards, candidates.times)
    else:
        losses = risk_loss(scores, candidates.rewards, candidate_mask(candidates.sentences, scores), config.alpha)
    total = objective.minimize.total + losses.sum()
    reward = Loss((candidates.times * candidates.rewards).sum(), candidates.times.sum())
    return Objective(Loss(total, objective.minimize.count), objective.report | {"reward": reward})


def sample_candidates(
    model: SequenceModel,
    sources: SourceTensors,
    references: Sequence[list[int]],
    specials: Specials,
    config: SequenceConfig,
) -> Candidates:
    """Sample candidates for each source; minimum risk training adds the reference if `config.reference`."""
    limits = torch.tensor([len(reference) + config.max_extra + 1 for reference in references], device=sources[0].device)
    if model.max_length is not None:
        limits = limits.clamp(max=model.max_length)
    samples = sample_translations(model, sources, limits, specials, config.samples)
    counted = [Counter(map(tuple, sentences)) for sentences in samples]
    if config.method == "risk" and config.reference:
        for counts, reference in zip(counted, references, strict=True):
            counts.setdefault(tuple(reference), 0)
    rewards = []
    for counts, reference in zip(counted, references, strict=True):
        reference_grams = count_ngrams(reference)
        rewards.append([gleu_from_counts(count_ngrams(sentence), reference_grams) for sentence in counts])
    sentences = [[list(sentence) for sentence in counts] for counts in counted]
    times = [list(counts.values()) for counts in counted]
    padded = (pad_with_zeros(rows).to(sources[0].device) for rows in (rewards, times))
    return Candidates(sentences, limits.tolist(), *padded)


def sample_translations(
    model: SequenceModel, sources: SourceTensors, limits: Tensor, specials: Specials, samples: int
) -> list[list[list[int]]]:
    """Draw `samples` translations of each source, by torch's seed, which is keyed by the step: a run is reproducible."""
    config = SearchConfig(method="sample", n_best=samples, seed=int(torch.randint(2**62, ())))
    with inference_context(model):
        state = model.start(*sources, room=int(limits.max()) * samples)
        batch = SourceBatch(state, limits, range(len(limits)), [[]] * len(limits))
        results = search_batch(step_function(model), batch, config, start=specials.start, end=specials.end)
    return [[hypothesis.tokens for hypothesis in hypotheses] for hypotheses in results]


def log_probabilities(
    model: SequenceModel,
    sources: SourceTensors,
    sentences: Sentences,
    limits: Sequence[int],
    specials: Specials,
) -> Tensor:
    """log P of every candidate in one teacher-forced pass: (sources, candidates), 0 where there is none.

    At the length limit the end token is the only one allowed, so it is not counted."""
    device = sources[0].device
    rows = [(at, sentence) for at, candidates in enumerate(sentences) for sentence in candidates]
    source_of = torch.tensor([at for at, _ in rows], device=device)
    target_in = pad([[specials.start, *sentence] for _, sentence in rows], specials.pad).to(device)  # (rows, time)
    target_out = pad([[*sentence, specials.end] for _, sentence in rows], specials.pad).to(device)
    lengths = torch.tensor([len(row) + (len(row) + 1 != limits[at]) for at, row in rows], device=device)  # (rows,)
    mask = torch.arange(target_in.shape[1], device=device) < lengths[:, None]  # (rows, time), True where a token is counted
    state = select_sources(model.start(*sources, room=0), source_of, beam=1)
    logits = model.project(model.step(target_in, state).hidden[mask]).float()  # (tokens, vocab)
    of_tokens = -functional.cross_entropy(logits, target_out[mask], reduction="none")
    of_rows = of_tokens.new_zeros(len(rows)).index_add(0, mask.nonzero()[:, 0], of_tokens)
    column = torch.cat([torch.arange(len(candidates)) for candidates in sentences]).to(device)
    return of_rows.new_zeros(len(sentences), max(map(len, sentences))).index_put((source_of, column), of_rows)


def candidate_mask(sentences: Sentences, like: Tensor) -> Tensor:
    """(sources, candidates): True where there is a candidate."""
    counts = torch.tensor([len(candidates) for candidates in sentences], device=like.device)
    return torch.arange(like.shape[1], device=like.device) < counts[:, None]


def pad_with_zeros(rows: Sequence[Sequence[float]]) -> Tensor:
    """(rows, longest), each row padded with zeros."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows], dtype=torch.float32)
