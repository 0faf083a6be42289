"""A trace: a sentence, what was made of it, and every attention map of one pass over the two, with the words to read it by.

trace = look_at(system, "I am trendy", SearchConfig())
for one in trace.maps: one.kind.name, one.layer, one.weights, trace.queries(one), trace.keys(one)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from heedful.data.corpus_text import encode_text
from heedful.inspection.alignment import merge_into_words
from heedful.inspection.attention_maps import AttentionMap, attention_maps
from heedful.inspection.attention_norms import attention_norms
from heedful.inspection.rollout import above_attention, rollout
from heedful.search import SearchConfig
from heedful.tasks.translate import System, collate_one, translate

NEXT_TOKEN = "…"  # what a text that is only read would go on with


class Tokens(NamedTuple):
    """A sentence cut into pieces."""

    text: str
    ids: list[int]  # without start and end
    pieces: list[str]  # readable, one for each id
    words: list[int]  # for each piece, the word of text.split() that it belongs to


class Trace(NamedTuple):
    source: Tokens | None  # None: there is only one text
    target: Tokens
    start: str  # how the marks that stand around a sentence are spelled
    end: str
    maps: list[AttentionMap]

    def queries(self, one: AttentionMap) -> list[str]:
        """The tokens that look. A token of the target stands for the moment at which it is said, the end included."""
        return names_or_numbers(
            self.source_tokens if one.kind.queries == "source" else [*self.target_tokens, self.end], one.weights.shape[1]
        )

    def input_tokens(self, one: AttentionMap) -> list[str]:
        """Of the target: the token that stands where each of the queries looks from; of the source, where it is named: none."""
        said = [self.start, *self.target_tokens]
        return said if one.kind.queries == "target" and len(said) == one.weights.shape[1] else []

    def keys(self, one: AttentionMap) -> list[str]:
        """The tokens that are looked at. Of the target: what had been said before, the start included."""
        source, target = self.source_tokens, [self.start, *self.target_tokens]
        return names_or_numbers(
            {"source": source, "target": target, "both": source + target}[one.kind.keys], one.weights.shape[2]
        )

    @property
    def source_tokens(self) -> list[str]:
        return [] if self.source is None else [*self.spell(self.source), self.end]

    @property
    def target_tokens(self) -> list[str]:
        return self.spell(self.target)

    def spell(self, side: Tokens) -> list[str]:
        """Its tokens, without the mark of a word's beginning where every piece of both sides is a word."""
        every = [*(self.source.pieces if self.source is not None else ()), *self.target.pieces]
        return [piece[1:] for piece in side.pieces] if all(piece[:1] == "▁" != piece for piece in every) else side.pieces


class Views(NamedTuple):
    """The maps of a trace and what is computed beside them."""

    norms: list[Tensor]  # for each map (heads, 1 or query, key): of the projected vectors; times its weights: the norms
    rollout: list[AttentionMap]  # of those layers that have one
    words: dict[int, Tensor]  # layer -> (heads, target words, source words)


def trace_translation(system: System, source: str, config: SearchConfig, target: str | None = None) -> Trace:
    """Of the translation that the search finds, or of the given one."""
    read = tokens_of(system, source, "source")
    if target is None:
        best = next(translate(system, [source], config)).candidates[0]
        said = tokens_from_ids(system, best.text, best.tokens, "target")
    else:
        said = tokens_of(system, target, "target")
    start, end = special_marks(system)
    return Trace(read, said, start, end, attention_maps(system.models[0], *collate_one(system, read.ids, said.ids)))


def trace_text(system: System, text: str) -> Trace:
    """Of a text that a language model reads; it begins where a line does."""
    said = tokens_from_ids(system, text, encode_text(system.target_tokenizer, text), "target")
    _, end = special_marks(system)
    return Trace(None, said, end, NEXT_TOKEN, attention_maps(system.models[0], *sequences(system, None, said)))


def views_of(system: System, trace: Trace) -> Views:
    model = system.models[0]
    assert isinstance(model, nn.Module), "models are modules"
    weighed = attention_norms(model, *sequences(system, trace.source, trace.target))
    return Views([one.norms for one in weighed], rollout(above_attention(model, trace.maps)), word_maps(trace))


def sequences(system: System, source: Tokens | None, target: Tokens) -> tuple[Tensor, Tensor]:
    """(1, source time), (1, target time): what the model is given."""
    if source is not None:
        return collate_one(system, source.ids, target.ids)
    given = torch.tensor([[system.target_tokenizer.specials.end, *target.ids]], device=system.device)
    return given[:, :0], given


def special_marks(system: System) -> tuple[str, str]:
    specials = system.target_tokenizer.specials
    start, end = system.target_tokenizer.pieces([specials.start, specials.end])
    return start, end


def tokens_of(system: System, text: str, side: str) -> Tokens:
    tokenizer = system.source_tokenizer if side == "source" else system.target_tokenizer
    return tokens_from_ids(system, text, tokenizer.encode(text), side)


def tokens_from_ids(system: System, text: str, ids: list[int], side: str) -> Tokens:
    tokenizer = system.source_tokenizer if side == "source" else system.target_tokenizer
    return Tokens(text, ids, tokenizer.pieces(ids), tokenizer.word_of(ids))


def names_or_numbers(tokens: Sequence[str], count: int) -> list[str]:
    """The tokens, if they are what is meant; blocks and summaries of several tokens go by number."""
    return list(tokens) if len(tokens) == count else [f"#{place}" for place in range(count)]


def word_maps(trace: Trace) -> dict[int, Tensor]:
    """How every layer's heads looked at the source, word by word: layer -> (heads, target words, source words)."""
    if trace.source is None or not trace.source.ids or not trace.target.ids:
        return {}
    read, said = trace.source.words, trace.target.words
    sees = [one for one in trace.maps if one.kind.queries == "target" and one.kind.keys in ("source", "both")]
    return {
        one.layer: torch.stack([merge_into_words(head[: len(said), : len(read)], read, said) for head in one.weights])
        for one in sees
        if one.weights.shape[0]
    }
