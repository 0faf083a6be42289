"""What if: another token at some place, another head, another source; what would the model have said then?

    alternatives   what else could have been said at token t, and how likely
    instead        the rest of the translation once the beginning is forced
    without        a system that lacks some heads: translate with it as with any other
    saliency       what each target token rests on, by gradient x input
    patched        what of another sentence must be put where for the answer to follow it

What is re-decoded is searched by the same search with the beginning forced, so it is what `heed translate --prefixes` gives.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from heedful.data.corpus_text import encode_text
from heedful.errors import ConfigError, DataError
from heedful.inspection.attention_maps import attentions, forced, layer_of
from heedful.inspection.lens import Lens, lens
from heedful.inspection.patching import Tracing, trace
from heedful.inspection.saliency import Saliency, saliency
from heedful.nn.hooks import hook
from heedful.search import SearchConfig
from heedful.studies.trace import Tokens, sequences, spelled, tokens_of
from heedful.tasks.translate import Candidate, Piece, System, decode_pieces


class EncodedPair(NamedTuple):
    """A source, and what was made of it."""

    source: Tokens | None  # None: a language model's text has none
    target: Tokens


class Alternative(NamedTuple):
    token: int
    piece: str
    probability: float
    chosen: bool  # whether it is what was said


class HeadName(NamedTuple):
    kind: str  # encoder, decoder, cross, …, as in inspection/maps.py
    layer: int
    head: int

    @staticmethod
    def named(name: str) -> HeadName:
        """cross.0.2: head 2 of the cross-attention of layer 0."""
        kind, *numbers = name.split(".")
        if len(numbers) != 2 or not all(number.isdigit() for number in numbers):
            raise ConfigError(f"head {name!r} was given; expected kind.layer.head, for example cross.0.2")
        return HeadName(kind, int(numbers[0]), int(numbers[1]))


def pair_of(system: System, source: str, config: SearchConfig, target: str | None = None) -> EncodedPair:
    """With the translation that the search finds, or the given one."""
    read = source_of(system, source)
    if target is not None:
        return EncodedPair(read, tokens_of(system, target, "target"))
    said = continue_from(system, read, config, []).tokens
    return EncodedPair(read, spelled(system, system.target_tokenizer.decode(said), said, "target"))


def source_of(system: System, text: str) -> Tokens:
    read = tokens_of(system, text, "source")
    if not 0 < len(read.ids) <= system.max_length:
        expected = f"expected 1 to {system.max_length}, to look at it in one piece"
        raise DataError(f"the source has {len(read.ids)} tokens; {expected}", hint="give one sentence")
    return read


def text_of(system: System, text: str) -> EncodedPair:
    """What a language model reads."""
    ids = encode_text(system.target_tokenizer, text)
    if not 0 < len(ids) < system.max_length:
        raise DataError(f"the text has {len(ids)} tokens; expected 1 to {system.max_length - 1}", hint="give a shorter one")
    return EncodedPair(None, spelled(system, text, ids, "target"))


def alternatives(system: System, pair: EncodedPair, at: int, count: int = 20) -> list[Alternative]:
    """The likeliest tokens at place `at` of the target, after all that stands before it; the end may stand after the last."""
    said = [*pair.target.ids, system.target_tokenizer.specials.end]
    if not 0 <= at < len(said):
        raise ConfigError(f"target token {at} was asked for; expected 0 to {len(said) - 1}, of which the last is the end")
    shares = log_probabilities(system, pair)[at].exp()
    best = shares.topk(min(count, len(shares)))
    tokens = best.indices.tolist()
    pieces = system.target_tokenizer.pieces(tokens)
    return [
        Alternative(token, piece, share, token == said[at])
        for token, piece, share in zip(tokens, pieces, best.values.tolist(), strict=True)
    ]


def log_probabilities(system: System, pair: EncodedPair) -> Tensor:
    """What may come after every beginning of the target: (target time, vocab); of an ensemble, of the mean probability."""
    source, target_in = sequences(system, *pair)
    found = []
    for model in system.models:
        assert isinstance(model, nn.Module), "models are modules"
        with forced(model):
            hidden = model.step(target_in, model.start(source, None, room=0)).hidden
            found.append(model.project(hidden)[0].float().log_softmax(-1))
    return torch.stack(found).logsumexp(0) - math.log(len(found))


def continue_from(system: System, source: Tokens, config: SearchConfig, beginning: list[int]) -> Candidate:
    """The best translation that begins with these tokens."""
    return decode_pieces(system, [Piece(0, source.ids, beginning, source.text)], config)[0][0]


def token_named(system: System, piece: str, among: Iterable[Alternative] = ()) -> int:
    """The token that a piece stands for: of those listed, the one so spelled; else the one that the piece is cut into."""
    for one in among:
        if piece in (one.piece, one.piece.lstrip("▁")):
            return one.token
    ids = system.target_tokenizer.encode(piece)
    if len(ids) != 1 or ids[0] == system.target_tokenizer.specials.unk:
        cut = " ".join(system.target_tokenizer.pieces(ids))
        given = f"{piece!r} was given, which is cut into: {cut}; expected one token of the target vocabulary"
        raise ConfigError(given, hint="give one of the alternatives")
    return ids[0]


@contextmanager
def without_heads(system: System, heads: Iterable[HeadName]) -> Iterator[System]:
    """The same system in which these heads find nothing."""
    gone: dict[str, set[int]] = {}
    first = system.models[0]
    assert isinstance(first, nn.Module), "models are modules"
    known = {(kind.name, layer_of(name)): name.removesuffix("weights") + "context" for name, kind in attentions(first).items()}
    for one in heads:
        if (one.kind, one.layer) not in known:
            listed = ", ".join(f"{kind}.{layer}" for kind, layer in known) or "none"
            raise ConfigError(f"there is no attention {one.kind}.{one.layer}; this model has: {listed}")
        gone.setdefault(known[one.kind, one.layer], set()).add(one.head)

    def silence(name: str, x: Tensor) -> Tensor:
        """x (rows, heads, query, head_dim)."""
        wrong = [head for head in gone[name] if not 0 <= head < x.shape[1]]
        if wrong:
            raise ConfigError(
                f"head {wrong[0]} was asked for; expected 0 to {x.shape[1] - 1} in {name.removesuffix('.context')}"
            )
        keep = torch.ones(x.shape[1], device=x.device, dtype=x.dtype)
        keep[list(gone[name])] = 0.0
        return x * keep[:, None, None]

    with ExitStack() as open_taps:
        for model in system.models:
            assert isinstance(model, nn.Module), "models are modules"
            for name in gone:
                open_taps.enter_context(hook(model, name, silence))
        yield system


def lens_of(system: System, pair: EncodedPair) -> Lens:
    return lens(system.models[0], *sequences(system, *pair))


def saliency_of(system: System, pair: EncodedPair, scales: Sequence[float] = (1.0,)) -> Saliency:
    source, target_in = sequences(system, *pair)
    return saliency(system.models[0], source, target_in, wanted(system, pair)[None], scales)


def patched(system: System, pair: EncodedPair, other: str) -> Tracing:
    """Run A reads the pair's source, run B the other one; both are led through the pair's target."""
    source, target_in = sequences(system, *pair)
    second, _ = sequences(system, source_of(system, other), pair.target)
    return trace(system.models[0], (source, second), target_in, wanted(system, pair)[None])


def wanted(system: System, pair: EncodedPair) -> Tensor:
    """What should be said: the target and its end, (target time,)."""
    return torch.tensor([*pair.target.ids, system.target_tokenizer.specials.end], device=system.device)
