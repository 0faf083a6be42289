"""A trace: a sentence, what was made of it, and every attention map of one pass over the two, with the words to read it by.

trace = look_at(system, "I am trendy", SearchConfig())
for one in trace.maps: one.kind.name, one.layer, one.weights, trace.queries(one), trace.keys(one)
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from heedful.inspection.alignment import between_words, cross_maps
from heedful.inspection.maps import Map, attention_maps
from heedful.search import SearchConfig
from heedful.tasks.translating import System, collate_one, translate


class Tokens(NamedTuple):
    """A sentence cut into pieces."""

    text: str
    ids: list[int]  # without start and end
    pieces: list[str]  # readable, one for each id
    words: list[int]  # for each piece, the word of text.split() that it belongs to


class Trace(NamedTuple):
    source: Tokens
    target: Tokens
    start: str  # how the marks that stand around a sentence are spelled
    end: str
    maps: list[Map]

    def queries(self, one: Map) -> list[str]:
        """The tokens that look. A token of the target stands for the moment at which it is said, the end included."""
        return [*self.source.pieces, self.end] if one.kind.queries == "source" else [*self.target.pieces, self.end]

    def keys(self, one: Map) -> list[str]:
        """The tokens that are looked at. Of the target: what had been said before, the start included."""
        source, target = [*self.source.pieces, self.end], [self.start, *self.target.pieces]
        return {"source": source, "target": target, "both": source + target}[one.kind.keys]


def look_at(system: System, source: str, config: SearchConfig, target: str | None = None) -> Trace:
    """Of the translation that the search finds, or of the given one."""
    if target is None:
        target = next(translate(system, [source], config)).text
    both = tokens_of(system, source, "source"), tokens_of(system, target, "target")
    specials = system.target_tokenizer.specials
    start, end = system.target_tokenizer.pieces([specials.start, specials.end])
    maps = attention_maps(system.models[0], *collate_one(system, both[0].ids, both[1].ids))
    return Trace(*both, start, end, maps)


def tokens_of(system: System, text: str, side: str) -> Tokens:
    tokenizer = system.source_tokenizer if side == "source" else system.target_tokenizer
    ids = tokenizer.encode(text)
    return Tokens(text, ids, tokenizer.pieces(ids), tokenizer.word_of(ids))


def word_attention(system: System, source: str, target: str) -> Tensor:
    """Of every head that looks at the source: (layers x heads, target words, source words)."""
    read, said = tokens_of(system, source, "source"), tokens_of(system, target, "target")
    maps = torch.cat(cross_maps(system.models[0], *collate_one(system, read.ids, said.ids)))
    maps = maps[:, : len(said.ids), : len(read.ids)]  # without the ends
    return torch.stack([between_words(weights, read.words, said.words) for weights in maps])
