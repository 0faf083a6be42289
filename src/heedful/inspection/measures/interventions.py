"""Interventions on an example: how the output changes with another token, without a head, or with another input.

alternatives    the most probable choices of an output, with probabilities and the entropy of all choices
without_heads   a predictor with some heads ablated
lens_of         the logit lens
saliency_of     saliency of source and target tokens by gradient x input
patch_input     activation patching from one input into another
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.errors import ConfigError
from heedful.inspection.measures.lens import Lens, lens
from heedful.inspection.measures.patching import Pass, PatchingResult, patch_passes
from heedful.inspection.measures.saliency import Saliency, saliency
from heedful.nn.hooks import hook
from heedful.nn.model import inference_context
from heedful.tasks.encoded_example import EncodedExample
from heedful.tasks.predictor import Predictor


class Alternative(NamedTuple):
    token: int
    piece: str
    probability: float
    chosen: bool  # whether it is the token of the target


class Choices(NamedTuple):
    """The distribution over the choices of an output."""

    alternatives: list[Alternative]  # most probable first
    entropy: float  # of all choices, in bits


class HeadName(NamedTuple):
    kind: str  # encoder, decoder, cross, …, as in nn/model.py
    layer: int
    head: int

    @staticmethod
    def parse(name: str) -> HeadName:
        """Parse cross.0.2: head 2 of the cross-attention of layer 0."""
        kind, *numbers = name.split(".")
        if len(numbers) != 2 or not all(number.isdigit() for number in numbers):
            raise ConfigError(f"given head {name!r}, expected kind.layer.head, for example cross.0.2")
        return HeadName(kind, int(numbers[0]), int(numbers[1]))


def alternatives(predictor: Predictor, example: EncodedExample, at: int, count: int = 20) -> Choices:
    """The most probable choices of output `at`, given the tokens before it; the last output of a target is the end token."""
    outputs = example.outputs
    if not 0 <= at < len(outputs.ids):
        last = "" if example.reads_end else " (the last is the end token)"
        raise ConfigError(f"given target position {at}, expected 0 to {len(outputs.ids) - 1}{last}")
    logs = log_probabilities(predictor, example)[at]  # (choices,)
    probabilities = logs.exp()
    best = probabilities.topk(min(count, len(probabilities)))
    tokens, given = best.indices.tolist(), int(outputs.ids[at])
    listed = [
        Alternative(token, piece, probability, token == given)
        for token, piece, probability in zip(tokens, outputs.spell(tokens), best.values.tolist(), strict=True)
    ]
    return Choices(listed, float(torch.special.entr(probabilities.double()).sum()) / math.log(2))


def log_probabilities(predictor: Predictor, example: EncodedExample) -> Tensor:
    """Log-probabilities of the choices of every output, averaged over an ensemble: (outputs, choices)."""
    logs = []
    for model in predictor.system.models:
        with inference_context(model):
            hidden = example.forward(model).hidden
            logs.append(example.logits(model, hidden)[0].float().log_softmax(-1))
    if not all(bool(one.logsumexp(-1).isfinite().all()) for one in logs):
        raise predictor.system.nonfinite_error("a target token")
    return torch.stack(logs).logsumexp(0) - math.log(len(logs))


def target_log_probabilities(predictor: Predictor, example: EncodedExample) -> Tensor:
    """Log-probabilities of the outputs of the example, (outputs,)."""
    return log_probabilities(predictor, example).gather(-1, example.outputs.ids[:, None])[:, 0]


def find_token(predictor: Predictor, piece: str, candidates: Iterable[Alternative] = ()) -> int:
    """The token of a piece: the candidate of this spelling, else the token that the piece is encoded as."""
    for candidate in candidates:
        if piece in (candidate.piece, candidate.piece.lstrip("▁")):
            return candidate.token
    tokenizer = predictor.system.target_tokenizer
    ids = tokenizer.encode(piece)
    if len(ids) != 1 or ids[0] == tokenizer.specials.unk:
        pieces = " ".join(tokenizer.pieces(ids))
        message = f"given {piece!r}, which is encoded as: {pieces}; expected one token of the target vocabulary"
        raise ConfigError(message, hint="give one of the alternatives")
    return ids[0]


@contextmanager
def without_heads(predictor: Predictor, heads: Iterable[HeadName]) -> Iterator[None]:
    """Ablate these heads: set their context vectors to zero."""
    ablated: dict[str, set[int]] = {}
    attentions = {(one.kind.name, one.layer): one for one in predictor.model.attentions()}
    for head in heads:
        attention = attentions.get((head.kind, head.layer))
        if attention is None:
            listed = ", ".join(f"{kind}.{layer}" for kind, layer in attentions) or "none"
            raise ConfigError(f"there is no attention {head.kind}.{head.layer}; this model has: {listed}")
        if head.head >= attention.heads:
            raise ConfigError(f"given head {head.head}, expected 0 to {attention.heads - 1} in {attention.name}")
        ablated.setdefault(attention.context, set()).add(head.head)

    def ablate(name: str, x: Tensor) -> Tensor:
        """x (rows, heads, query, head_dim)."""
        keep = torch.ones(x.shape[1], device=x.device, dtype=x.dtype)
        keep[list(ablated[name])] = 0.0
        return x * keep[:, None, None]

    with ExitStack() as hooks:
        for model in predictor.system.models:
            for name in ablated:
                hooks.enter_context(hook(model, name, ablate))
        yield


def lens_of(predictor: Predictor, example: EncodedExample) -> Lens:
    """The logit lens: logits of the outputs from each layer."""
    model = predictor.model
    return lens(model.base_model, example.forward, lambda hidden: example.logits(model, hidden))


def saliency_of(predictor: Predictor, example: EncodedExample, scales: Sequence[float] = (1.0,)) -> Saliency:
    """scales: see `saliency`."""
    model = predictor.model

    def score(hidden: Tensor) -> Tensor:
        return example.scores(model, hidden)

    return saliency(model.base_model, example.forward, score, len(example.outputs.ids), scales)


def patch_input(predictor: Predictor, example: EncodedExample, other: str) -> PatchingResult:
    """Patch activations of run A, on the example, into run B, on another input with the same outputs."""
    second = predictor.replace_input(example, other)
    model = predictor.model
    first, other_pass = (Pass(one.forward, partial(one.log_probabilities, model)) for one in (example, second))
    return patch_passes(model.base_model, first, other_pass)
