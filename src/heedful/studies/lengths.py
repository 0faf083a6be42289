"""Loss by length: how a model fares with targets longer than those it knows, and with tokens farther from the start.

    judged = judge(system, *joined(examples, 3))         three sentences in a row: longer than any it was trained on
    by_length(judged, width), by_position(judged, width)

What is joined was never seen joined, so two things are new at once, the length and the second sentence: sentences alone and
joined of one length tell what the second costs, joined ones of other lengths what the length does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from heedful.inspection.attention_maps import inference_context
from heedful.tasks.batches import collate
from heedful.tasks.evaluate_translations import Examples
from heedful.tasks.translate import System, batches_of


class TokenScores(NamedTuple):
    """One target, token by token, its end included."""

    losses: Tensor  # (time,): -log p
    hits: Tensor  # (time,): 1 where the likeliest token is the right one


class Bucket(NamedTuple):
    first: int  # tokens of the target, or the place of a token in it, from 1
    last: int
    sentences: int
    tokens: int
    loss: float  # nats a token
    accuracy: float


def join_neighbors(examples: Examples, times: int) -> Examples:
    """So many neighbors in a row become one; what is left over at the end is left out."""

    def chunks(lines: Sequence[str]) -> list[str]:
        return [" ".join(lines[at : at + times]) for at in range(0, len(lines) - times + 1, times)]

    return Examples(chunks(examples.sources), chunks(examples.references))


def score_examples(system: System, examples: Examples) -> list[TokenScores]:
    """In the order of the examples; a length that the model refuses is an error that says so."""
    sources = system.source_tokenizer.encode_many(examples.sources)
    targets = system.target_tokenizer.encode_many(examples.references)
    lengths = [max(len(source), len(target)) + 1 for source, target in zip(sources, targets, strict=True)]
    order = sorted(range(len(lengths)), key=lambda i: lengths[i], reverse=True)
    specials, model = (system.source_tokenizer.specials, system.target_tokenizer.specials), system.models[0]
    assert isinstance(model, nn.Module), "models are modules"
    found: dict[int, TokenScores] = {}
    for chosen in batches_of(order, lambda i: lengths[i], 2**12):
        batch = collate([sources[i] for i in chosen], [targets[i] for i in chosen], *specials).to(system.device)
        with inference_context(model):
            state = model.start(batch.source, batch.source_mask, room=0)
            logits = model.project(model.step(batch.target_in, state).hidden).float()
            losses = -logits.log_softmax(-1).gather(-1, batch.target_out[..., None])[..., 0].cpu()
            hits = (logits.argmax(-1) == batch.target_out).cpu()
        for row, i in enumerate(chosen):
            real = len(targets[i]) + 1
            found[i] = TokenScores(losses[row, :real], hits[row, :real].float())
    return [found[i] for i in range(len(lengths))]


def by_length(scores: Iterable[TokenScores], width: int) -> list[Bucket]:
    """Targets of 1 to `width` tokens, the end counted, then the next `width`, and so on."""
    groups: dict[int, list[TokenScores]] = {}
    for one in scores:
        groups.setdefault((len(one.losses) - 1) // width, []).append(one)
    return [
        bucket(number, width, torch.cat([x.losses for x in group]), torch.cat([x.hits for x in group]), len(group))
        for number, group in sorted(groups.items())
    ]


def by_position(scores: Sequence[TokenScores], width: int) -> list[Bucket]:
    """The first `width` tokens of all targets, then the next, and so on."""
    longest = max((len(one.losses) for one in scores), default=0)
    found = []
    for number in range(-(-longest // width)):
        part = slice(number * width, (number + 1) * width)
        reached = [one for one in scores if len(one.losses) > part.start]
        losses, hits = (torch.cat([getattr(one, name)[part] for one in reached]) for name in ("losses", "hits"))
        found.append(bucket(number, width, losses, hits, len(reached)))
    return found


def bucket(number: int, width: int, losses: Tensor, hits: Tensor, sentences: int) -> Bucket:
    count = len(losses)
    mean = float(losses.double().mean())
    return Bucket(number * width + 1, (number + 1) * width, sentences, count, mean, float(hits.double().mean()))
