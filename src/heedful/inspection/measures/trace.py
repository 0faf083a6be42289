"""A trace: a source, its translation, and the attention weights of one teacher-forced pass, with tokens of rows and columns.

trace = trace_translation(system, "I am trendy", SearchConfig())
for one in trace.maps: one.kind.name, one.layer, one.weights, trace.queries(one), trace.keys(one)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.data.corpus_text import encode_text
from heedful.inspection.measures.attention_maps import AttentionMap, attention_maps
from heedful.inspection.measures.attention_norms import attention_norms
from heedful.inspection.measures.merge_words import merge_into_words
from heedful.inspection.measures.rollout import above_attention, rollout
from heedful.search import SearchConfig
from heedful.tasks.system import System, collate_one
from heedful.tasks.translation.translate import translate

NEXT_TOKEN = "…"  # placeholder for the token that follows a text


class Tokens(NamedTuple):
    """A tokenized sentence."""

    text: str
    ids: list[int]  # without start and end tokens
    pieces: list[str]  # readable, one for each id
    words: list[int]  # for each piece the index of its word in text.split()


class Trace(NamedTuple):
    source: Tokens | None  # None: language model
    target: Tokens
    start: str  # spelling of the start and end tokens
    end: str
    maps: list[AttentionMap]

    def queries(self, one: AttentionMap) -> list[str]:
        """Return the tokens of the queries. The row of a target token is the step that predicts it, including the end token."""
        return names_or_numbers(
            self.source_tokens if one.kind.queries == "source" else [*self.target_tokens, self.end], one.weights.shape[1]
        )

    def input_tokens(self, one: AttentionMap) -> list[str]:
        """Return the tokens consumed at the steps of the target queries; empty for source queries."""
        inputs = [self.start, *self.target_tokens]
        return inputs if one.kind.queries == "target" and len(inputs) == one.weights.shape[1] else []

    def keys(self, one: AttentionMap) -> list[str]:
        """Return the tokens of the keys. Of the target: the previous tokens, including the start token."""
        source, target = self.source_tokens, [self.start, *self.target_tokens]
        return names_or_numbers(
            {"source": source, "target": target, "both": source + target}[one.kind.keys], one.weights.shape[2]
        )

    @property
    def source_tokens(self) -> list[str]:
        """The source with its end token."""
        return [] if self.source is None else [*self.spell(self.source), self.end]

    @property
    def target_tokens(self) -> list[str]:
        return self.spell(self.target)

    def spell(self, side: Tokens) -> list[str]:
        """Return the pieces of a side, without the word-start marker if every piece of both sides is a word."""
        pieces = [*(self.source.pieces if self.source is not None else ()), *self.target.pieces]
        return [piece[1:] for piece in side.pieces] if all(piece[:1] == "▁" != piece for piece in pieces) else side.pieces


class Views(NamedTuple):
    """Values derived from the attention weights of a trace."""

    norms: list[Tensor]  # for each map (heads, 1 or query, key): norms of the projected value vectors
    rollout: list[AttentionMap]  # of layers for which it is defined
    words: dict[int, Tensor]  # layer -> (heads, target words, source words)


def trace_translation(system: System, source: str, config: SearchConfig, target: str | None = None) -> Trace:
    """Trace the translation by the system, or the given target."""
    source_side = tokens_of(system, source, "source")
    if target is None:
        best = next(translate(system, [source], config)).candidates[0]
        target_side = tokens_from_ids(system, best.text, best.tokens, "target")
    else:
        target_side = tokens_of(system, target, "target")
    start, end = special_marks(system)
    return Trace(
        source_side, target_side, start, end, finite_maps(system, *collate_one(system, source_side.ids, target_side.ids))
    )


def trace_text(system: System, text: str) -> Trace:
    """Trace a text of a language model, starting after an end token."""
    tokens = tokens_from_ids(system, text, encode_text(system.target_tokenizer, text), "target")
    _, end = special_marks(system)
    return Trace(None, tokens, end, NEXT_TOKEN, finite_maps(system, *sequences(system, None, tokens)))


def finite_maps(system: System, source: Tensor, target_in: Tensor) -> list[AttentionMap]:
    """Return the attention weights of a pass; weights that are not finite are an error of the checkpoint."""
    maps = attention_maps(system.models[0], source, target_in)
    for one in maps:
        if not bool(one.weights.isfinite().all()):
            raise system.nonfinite_error(f"hook point {one.name}")
    return maps


def views_of(system: System, trace: Trace) -> Views:
    """Compute norms, rollout and word-level weights of a trace."""
    model = system.models[0]
    norms = attention_norms(model, *sequences(system, trace.source, trace.target))
    return Views([one.norms for one in norms], rollout(above_attention(model, trace.maps)), word_maps(trace))


def sequences(system: System, source: Tokens | None, target: Tokens) -> tuple[Tensor, Tensor]:
    """Return the model inputs: (1, source time), (1, target time)."""
    if source is not None:
        return collate_one(system, source.ids, target.ids)
    inputs = torch.tensor([[system.target_tokenizer.specials.end, *target.ids]], device=system.device)
    return inputs[:, :0], inputs


def special_marks(system: System) -> tuple[str, str]:
    """Return the spelling of the start and end tokens."""
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
    """Return the tokens if there are `count` of them, else numbers (for blocks and compressed keys)."""
    return list(tokens) if len(tokens) == count else [f"#{index}" for index in range(count)]


def word_maps(trace: Trace) -> dict[int, Tensor]:
    """Return the attention to the source between words: layer -> (heads, target words, source words)."""
    if trace.source is None or not trace.source.ids or not trace.target.ids:
        return {}
    source_words, target_words = trace.source.words, trace.target.words
    to_source = [one for one in trace.maps if one.kind.queries == "target" and one.kind.keys in ("source", "both")]
    return {
        one.layer: torch.stack(
            [
                merge_into_words(head[: len(target_words), : len(source_words)], source_words, target_words)
                for head in one.weights
            ]
        )
        for one in to_source
        if one.weights.shape[0]
    }
