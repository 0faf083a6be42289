"""Loss by length: for targets longer than those of training, and by token position.

    scores = score_examples(system, join_neighbors(examples, 3))         three concatenated sentences: longer than in training
    by_length(scores, width), by_position(scores, width)

Concatenated sentences differ from training in length and in being concatenated: compare single and concatenated examples of
equal length for the effect of concatenation, and concatenated examples of different lengths for that of length.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.nn.model import inference_context
from heedful.tasks.batches import collate
from heedful.tasks.system import System, batches_of
from heedful.tasks.translation.data import Examples


class TokenScores(NamedTuple):
    """Scores of one target by token, including the end token."""

    losses: Tensor  # (time,): -log p
    hits: Tensor  # (time,): 1 where the most likely token is correct


class Bucket(NamedTuple):
    first: int  # target length, or token position, from 1
    last: int
    sentences: int
    tokens: int
    loss: float  # nats per token
    accuracy: float


def join_neighbors(examples: Examples, times: int) -> Examples:
    """Concatenate `times` consecutive examples; a remainder is dropped."""

    def chunks(lines: Sequence[str]) -> list[str]:
        return [" ".join(lines[at : at + times]) for at in range(0, len(lines) - times + 1, times)]

    return Examples(chunks(examples.sources), chunks(examples.references))


def score_examples(system: System, examples: Examples) -> list[TokenScores]:
    """Score examples in order; raises an error for lengths that the model does not support."""
    sources = system.source_tokenizer.encode_many(examples.sources)
    targets = system.target_tokenizer.encode_many(examples.references)
    lengths = [max(len(source), len(target)) + 1 for source, target in zip(sources, targets, strict=True)]
    order = sorted(range(len(lengths)), key=lambda i: lengths[i], reverse=True)
    specials, model = (system.source_tokenizer.specials, system.target_tokenizer.specials), system.models[0]
    scores: dict[int, TokenScores] = {}
    for indices in batches_of(order, lambda i: lengths[i], 2**12):
        batch = collate([sources[i] for i in indices], [targets[i] for i in indices], *specials).to(system.device)
        with inference_context(model):
            logits = model.forced_logits(batch.source, batch.source_mask, batch.target_in).float()
            losses = -logits.log_softmax(-1).gather(-1, batch.target_out[..., None])[..., 0].cpu()
            hits = (logits.argmax(-1) == batch.target_out).cpu()
        for row, i in enumerate(indices):
            count = len(targets[i]) + 1
            scores[i] = TokenScores(losses[row, :count], hits[row, :count].float())
    return [scores[i] for i in range(len(lengths))]


def by_length(scores: Iterable[TokenScores], width: int) -> list[Bucket]:
    """Return buckets of targets with 1 to `width` tokens (including the end token), then the next `width`, and so on."""
    groups: dict[int, list[TokenScores]] = {}
    for target in scores:
        groups.setdefault((len(target.losses) - 1) // width, []).append(target)
    return [
        bucket(number, width, torch.cat([x.losses for x in group]), torch.cat([x.hits for x in group]), len(group))
        for number, group in sorted(groups.items())
    ]


def by_position(scores: Sequence[TokenScores], width: int) -> list[Bucket]:
    """Return buckets of the first `width` tokens of all targets, then the next, and so on."""
    longest = max((len(target.losses) for target in scores), default=0)
    buckets = []
    for number in range(-(-longest // width)):
        part = slice(number * width, (number + 1) * width)
        reached = [target for target in scores if len(target.losses) > part.start]
        losses, hits = (torch.cat([getattr(target, name)[part] for target in reached]) for name in ("losses", "hits"))
        buckets.append(bucket(number, width, losses, hits, len(reached)))
    return buckets


def bucket(number: int, width: int, losses: Tensor, hits: Tensor, sentences: int) -> Bucket:
    count = len(losses)
    mean = float(losses.double().mean())
    return Bucket(number * width + 1, (number + 1) * width, sentences, count, mean, float(hits.double().mean()))
