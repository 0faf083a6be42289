"""Interventions: how the output changes with another token, without a head, or with another source.

    alternatives    alternative tokens at a target position, with probabilities
    continue_from   the best translation with a given prefix
    without_heads   a system with some heads ablated
    saliency_of     saliency of source and target tokens by gradient x input
    patch_source    activation patching from one source into another

Continuations are decoded by the usual search with a forced prefix, as in `heed translate --prefixes`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.data.corpus_text import encode_text
from heedful.errors import ConfigError, DataError
from heedful.inspection.measures.lens import Lens, lens
from heedful.inspection.measures.patching import PatchingResult, trace
from heedful.inspection.measures.saliency import Saliency, saliency
from heedful.inspection.measures.trace import Tokens, sequences, tokens_from_ids, tokens_of
from heedful.nn.hooks import hook
from heedful.nn.model import inference_context
from heedful.search import SearchConfig
from heedful.tasks.system import System
from heedful.tasks.translation.translate import Candidate, Piece, decode_pieces


class EncodedPair(NamedTuple):
    """A tokenized source and target."""

    source: Tokens | None  # None: language model
    target: Tokens


class Alternative(NamedTuple):
    token: int
    piece: str
    probability: float
    chosen: bool  # whether it is the token of the target


class HeadName(NamedTuple):
    kind: str  # encoder, decoder, cross, …, as in inspection/attention_maps.py
    layer: int
    head: int

    @staticmethod
    def parse(name: str) -> HeadName:
        """Parse cross.0.2: head 2 of the cross-attention of layer 0."""
        kind, *numbers = name.split(".")
        if len(numbers) != 2 or not all(number.isdigit() for number in numbers):
            raise ConfigError(f"given head {name!r}, expected kind.layer.head, for example cross.0.2")
        return HeadName(kind, int(numbers[0]), int(numbers[1]))


def pair_of(system: System, source: str, config: SearchConfig, target: str | None = None) -> EncodedPair:
    """Return the source with its translation by the system, or with the given target."""
    encoded = source_of(system, source)
    if target is not None:
        return EncodedPair(encoded, tokens_of(system, target, "target"))
    output = continue_from(system, encoded, config, []).tokens
    return EncodedPair(encoded, tokens_from_ids(system, system.target_tokenizer.decode(output), output, "target"))


def source_of(system: System, text: str) -> Tokens:
    """Tokenize a source and check its length."""
    tokens = tokens_of(system, text, "source")
    if not 0 < len(tokens.ids) <= system.max_length:
        raise DataError(f"the source has {len(tokens.ids)} tokens; expected 1 to {system.max_length}", hint="give one sentence")
    return tokens


def text_of(system: System, text: str) -> EncodedPair:
    """Tokenize the text of a language model and check its length."""
    ids = encode_text(system.target_tokenizer, text)
    if not 0 < len(ids) < system.max_length:
        raise DataError(f"the text has {len(ids)} tokens; expected 1 to {system.max_length - 1}", hint="give a shorter text")
    return EncodedPair(None, tokens_from_ids(system, text, ids, "target"))


def alternatives(system: System, pair: EncodedPair, at: int, count: int = 20) -> list[Alternative]:
    """Return the most likely tokens at target position `at` given the tokens before it; the last position is the end token."""
    targets = [*pair.target.ids, system.target_tokenizer.specials.end]
    if not 0 <= at < len(targets):
        raise ConfigError(f"given target position {at}, expected 0 to {len(targets) - 1} (the last is the end token)")
    probabilities = log_probabilities(system, pair)[at].exp()
    best = probabilities.topk(min(count, len(probabilities)))
    tokens = best.indices.tolist()
    pieces = system.target_tokenizer.pieces(tokens)
    return [
        Alternative(token, piece, probability, token == targets[at])
        for token, piece, probability in zip(tokens, pieces, best.values.tolist(), strict=True)
    ]


def log_probabilities(system: System, pair: EncodedPair) -> Tensor:
    """Return log-probabilities after every prefix of the target, averaged over an ensemble: (target time, vocab)."""
    source, target_in = sequences(system, *pair)
    logs = []
    for model in system.models:
        with inference_context(model):
            logs.append(model.forced_logits(source, None, target_in)[0].float().log_softmax(-1))
    if not all(bool(one.logsumexp(-1).isfinite().all()) for one in logs):
        raise system.nonfinite_error("a target token")
    return torch.stack(logs).logsumexp(0) - math.log(len(logs))


def continue_from(system: System, source: Tokens, config: SearchConfig, prefix: list[int]) -> Candidate:
    """Return the best translation with this prefix."""
    return decode_pieces(system, [Piece(0, source.ids, prefix, source.text)], config)[0][0]


def find_token(system: System, piece: str, candidates: Iterable[Alternative] = ()) -> int:
    """Return the token of a piece: the candidate of this spelling, else the token that the piece is encoded as."""
    for candidate in candidates:
        if piece in (candidate.piece, candidate.piece.lstrip("▁")):
            return candidate.token
    ids = system.target_tokenizer.encode(piece)
    if len(ids) != 1 or ids[0] == system.target_tokenizer.specials.unk:
        pieces = " ".join(system.target_tokenizer.pieces(ids))
        message = f"given {piece!r}, which is encoded as: {pieces}; expected one token of the target vocabulary"
        raise ConfigError(message, hint="give one of the alternatives")
    return ids[0]


@contextmanager
def without_heads(system: System, heads: Iterable[HeadName]) -> Iterator[System]:
    """Ablate these heads: set their context vectors to zero."""
    ablated: dict[str, set[int]] = {}
    attentions = {(one.kind.name, one.layer): one for one in system.models[0].attentions()}
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
        for model in system.models:
            for name in ablated:
                hooks.enter_context(hook(model, name, ablate))
        yield system


def lens_of(system: System, pair: EncodedPair) -> Lens:
    return lens(system.models[0], *sequences(system, *pair))


def saliency_of(system: System, pair: EncodedPair, scales: Sequence[float] = (1.0,)) -> Saliency:
    source, target_in = sequences(system, *pair)
    return saliency(system.models[0], source, target_in, target_tokens(system, pair)[None], scales)


def patch_source(system: System, pair: EncodedPair, other: str) -> PatchingResult:
    """Patch run A with the source of the pair into run B with the other source; both decode the target of the pair."""
    source, target_in = sequences(system, *pair)
    second, _ = sequences(system, source_of(system, other), pair.target)
    return trace(system.models[0], (source, second), target_in, target_tokens(system, pair)[None])


def target_tokens(system: System, pair: EncodedPair) -> Tensor:
    """Return the target with its end token, (target time,)."""
    return torch.tensor([*pair.target.ids, system.target_tokenizer.specials.end], device=system.device)
