"""Refinement by whole sentences: the model says sentences, they are compared with the reference, and the better ones are
made likelier. Training by likelihood never sees what the model itself would say; this does.

    minimize   ml_weight * (the usual loss) + sum over sources of a loss of `nn/sequence_losses.py`,  reward r = GLEU

Both are sums over sentences, divided by the target tokens of the batch as every loss here is. Sentences are drawn by the
search that also translates, without dropout, and then read by the model that is being trained, the source only once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional

from heedful.bounds import MAX_BEAM
from heedful.evaluation.gleu import count_ngrams, gleu_from_counts
from heedful.inspection.attention_maps import inference_context
from heedful.models import SequenceModel
from heedful.nn.decoder_state import select_sources
from heedful.nn.losses import Loss
from heedful.nn.sequence_losses import reward_loss, risk_loss
from heedful.schema import Config, NonNegativeNumber, PositiveNumber, ZeroOrSize, refuse_unused
from heedful.search import Group, SearchConfig, search_group, step_function
from heedful.tasks.batches import Batch, pad
from heedful.text.specials import Specials
from heedful.training.update import Objective

ML_WEIGHT = {"none": 1.0, "reward": 0.017, "risk": 0.0}  # as published

Samples = Annotated[int, Field(ge=2, le=MAX_BEAM)]


class SequenceConfig(Config):
    """Refinement by sentences that the model says itself; begin with a trained one (`training.init`)."""

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
    def likelihood(self) -> float:
        """What the usual loss is multiplied by."""
        return ML_WEIGHT[self.method] if self.ml_weight is None else self.ml_weight

    @model_validator(mode="after")
    def _fits_together(self) -> SequenceConfig:
        why = f"task.sequence.method is {self.method!r}"
        idle = {"none": [name for name in type(self).model_fields if name != "method"], "reward": ["alpha", "reference"]}
        refuse_unused(self, dict.fromkeys(idle.get(self.method, ()), why))
        return self


Sources = tuple[Tensor, Tensor | None]  # (sources, time) ids and which of them are real; None: all
Sentences = Sequence[Sequence[list[int]]]  # for each source, ids without start and end


class Candidates(NamedTuple):
    """What could be said, once each, and what it is worth."""

    sentences: Sentences
    limits: list[int]  # of each source: where a sentence has so many tokens, the end counted, it could only end
    rewards: Tensor  # (sources, candidates); 0 where there is none
    times: Tensor  # (sources, candidates) how often it was drawn


def sequence_objective(
    objective: Objective, model: SequenceModel, batch: Batch, specials: Specials, config: SequenceConfig
) -> Objective:
    """The usual objective, already weighed, with the loss of the sentences added."""
    kept = (batch.target_out != specials.pad).any(1).nonzero().squeeze(1)  # rows that fill a batch up have no target
    if not len(kept):
        return objective
    sources = batch.source[kept], None if batch.source_mask is None else batch.source_mask[kept]
    references = [row[: row.index(specials.end)] for row in batch.target_out[kept].tolist()]
    candidates = draw(model, sources, references, specials, config)
    likely = log_probabilities(model, sources, candidates.sentences, candidates.limits, specials)  # (sources, candidates)
    if config.method == "reward":
        losses = reward_loss(likely, candidates.rewards, candidates.times)
    else:
        losses = risk_loss(likely, candidates.rewards, token_mask(candidates.sentences, likely), config.alpha)
    total = objective.minimize.total + losses.sum()
    reward = Loss((candidates.times * candidates.rewards).sum(), candidates.times.sum())
    return Objective(Loss(total, objective.minimize.count), objective.report | {"reward": reward})


def draw(
    model: SequenceModel,
    sources: Sources,
    references: Sequence[list[int]],
    specials: Specials,
    config: SequenceConfig,
) -> Candidates:
    """Sentences that the model says, and with risk the reference if it shall be among them."""
    limits = torch.tensor([len(reference) + config.max_extra + 1 for reference in references], device=sources[0].device)
    if model.max_length is not None:
        limits = limits.clamp(max=model.max_length)
    drawn = sample_translations(model, sources, limits, specials, config.samples)
    counted = [Counter(map(tuple, sentences)) for sentences in drawn]
    if config.method == "risk" and config.reference:
        for found, reference in zip(counted, references, strict=True):
            found.setdefault(tuple(reference), 0)
    rewards = []
    for found, reference in zip(counted, references, strict=True):
        wanted = count_ngrams(reference)
        rewards.append([gleu_from_counts(count_ngrams(sentence), wanted) for sentence in found])
    sentences = [[list(sentence) for sentence in found] for found in counted]
    times = [list(found.values()) for found in counted]
    rectangles = (rectangle(rows).to(sources[0].device) for rows in (rewards, times))
    return Candidates(sentences, limits.tolist(), *rectangles)


def sample_translations(
    model: SequenceModel, sources: Sources, limits: Tensor, specials: Specials, samples: int
) -> list[list[list[int]]]:
    """So many draws for each source. They follow from torch's seed, which is keyed by the step, so a run can be repeated."""
    assert isinstance(model, nn.Module), "models are modules"
    config = SearchConfig(method="sample", n_best=samples, seed=int(torch.randint(2**62, ())))
    with inference_context(model):
        state = model.start(*sources, room=int(limits.max()) * samples)
        group = Group(state, limits, range(len(limits)), [[]] * len(limits))
        found = search_group(step_function(model), group, config, start=specials.start, end=specials.end)
    return [[one.tokens for one in hypotheses] for hypotheses in found]


def log_probabilities(
    model: SequenceModel,
    sources: Sources,
    sentences: Sentences,
    limits: Sequence[int],
    specials: Specials,
) -> Tensor:
    """log P of every candidate by one forced pass: (sources, candidates), 0 where there is none.

    An end at the limit was no choice: nothing else could be said there, so it counts for nothing."""
    device = sources[0].device
    rows = [(at, sentence) for at, some in enumerate(sentences) for sentence in some]
    owner = torch.tensor([at for at, _ in rows], device=device)
    target_in = pad([[specials.start, *sentence] for _, sentence in rows], specials.pad).to(device)  # (rows, time)
    target_out = pad([[*sentence, specials.end] for _, sentence in rows], specials.pad).to(device)
    chosen = torch.tensor([len(one) + (len(one) + 1 != limits[at]) for at, one in rows], device=device)  # (rows,)
    counts = torch.arange(target_in.shape[1], device=device) < chosen[:, None]  # (rows, time)
    state = select_sources(model.start(*sources, room=0), owner, beam=1)
    logits = model.project(model.step(target_in, state).hidden[counts]).float()  # (tokens, vocab)
    said = -functional.cross_entropy(logits, target_out[counts], reduction="none")
    of_rows = said.new_zeros(len(rows)).index_add(0, counts.nonzero()[:, 0], said)
    place = torch.cat([torch.arange(len(some)) for some in sentences]).to(device)
    return of_rows.new_zeros(len(sentences), max(map(len, sentences))).index_put((owner, place), of_rows)


def token_mask(sentences: Sentences, like: Tensor) -> Tensor:
    """(sources, candidates): which places hold a candidate."""
    counts = torch.tensor([len(some) for some in sentences], device=like.device)
    return torch.arange(like.shape[1], device=like.device) < counts[:, None]


def rectangle(rows: Sequence[Sequence[float]]) -> Tensor:
    """(rows, longest), zeros behind each."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows], dtype=torch.float32)
