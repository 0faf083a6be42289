"""Decoding of pieces: token ids -> start -> search -> hypotheses.

    for source_id, hypotheses in search_pieces(decoder, pieces, SearchConfig(beam=5)): …

A piece is a sentence to translate, a history to reply to, or a text to continue. Those of a batch are padded at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.errors import ConfigError
from heedful.nn import masks
from heedful.nn.decoder_state import State, States, add_room, select_sources
from heedful.nn.hooks import any_hooks
from heedful.search import (
    GraphInputs,
    Sampling,
    SearchConfig,
    SearchResult,
    SourceBatch,
    Sources,
    StepFunction,
    ensemble,
    length_limit,
    search,
    step_function,
)
from heedful.tasks.batches import pad
from heedful.tasks.system import System

MIN_SHARED = 16  # tokens of a prefix that is worth encoding once for several texts


class Piece(NamedTuple):
    """A source to search: a line, a part of a long one, or the context of a text to continue."""

    source_id: int  # unique in a search
    ids: list[int]
    prefix: list[int]  # target tokens that the output must start with
    text: str
    start: int | None = None  # first input of the decoder; None: the start token
    limit: int | None = None  # maximum tokens of the output; None: by the length of the source and the config
    sampling: Sampling | None = None  # None: by the config, with the source id as random stream
    image: NDArray[np.uint8] | None = None  # pixels of a source that is an image; its ids are the numbers of its patches


@dataclass(frozen=True)
class Decoder:
    """The model of a task and how its sources are encoded."""

    system: System
    start: int  # special tokens of the target
    end: int
    ends_source: bool = True  # whether sources end with an end token; a text to continue does not

    @property
    def captures(self) -> bool:
        """Whether steps are captured in CUDA graphs; a replayed step calls no hook."""
        return self.system.device.type == "cuda" and not any_hooks()

    def source_length(self, piece: Piece) -> int:
        return len(piece.ids) + self.ends_source

    def next_token(self) -> StepFunction:
        """The step function of the model or the ensemble."""
        members = [step_function(model) for model in self.system.models]
        return members[0] if len(members) == 1 else ensemble(members)

    def limit(self, piece: Piece, config: SearchConfig) -> int:
        """Maximum tokens of the output, the end token included."""
        prefix, longest = len(piece.prefix), self.max_target
        limit = length_limit(config, len(piece.ids), prefix) if piece.limit is None else piece.limit + 1
        if longest is None:
            return limit
        if prefix >= longest:
            raise ConfigError(f"a prefix has {prefix} tokens; this model generates at most {longest - 1}")
        return min(limit, longest)

    @cached_property
    def max_target(self) -> int | None:
        """Maximum tokens of an output; None: not limited by the model, or limited by the task."""
        limits = [model.max_length for model in self.system.models if model.max_length is not None]
        return min(limits) if limits and self.ends_source else None

    def start_states(self, source: Tensor, mask: Tensor | None, slots: int) -> States:
        """Encode sources (sources, time) -> states with room for new tokens."""
        source, mask = source.to(self.system.device), None if mask is None else mask.to(self.system.device)
        states = tuple(model.start(source, mask, room=slots) for model in self.system.models)
        return states[0] if len(states) == 1 else states

    def encode(self, pieces: Sequence[Piece], slots: int, *, length: int = 0, masked: bool = False) -> States:
        """The states of pieces, padded to `length` tokens if that is longer; masked: with a mask even if nothing is padded."""
        specials = self.system.source_tokenizer.specials
        rows = [[*piece.ids, specials.end] if self.ends_source else piece.ids for piece in pieces]
        if not self.ends_source and (shared := shared_prefix(rows)) >= MIN_SHARED and len(rows) > 1:
            return self.encode_after_prefix(rows, shared, slots, length)
        longest = max(length, *map(len, rows)) if rows else length
        source = torch.full((len(rows), longest), specials.pad)
        padded = pad(rows, specials.pad)
        source[:, : padded.shape[1]] = padded
        mask = masks.padding(torch.tensor([len(row) for row in rows]), longest)
        return self.start_states(source, mask if masked or not bool(mask.all()) else None, slots)

    def encode_after_prefix(self, rows: Sequence[list[int]], shared: int, slots: int, length: int) -> States:
        """As `encode`, for texts to continue that begin with the same tokens, which are encoded once."""
        (model,), device = self.system.models, self.system.device
        suffixes = [row[shared:] for row in rows]
        longest = max(max(map(len, suffixes)), length - shared)
        state = model.start(torch.tensor([rows[0][:shared]], device=device), None, room=max(longest, 1))
        state = select_sources(state, torch.zeros(len(rows), dtype=torch.long, device=device), 1)
        if longest:
            tokens = torch.zeros(len(rows), longest, dtype=torch.long)
            padded = pad(suffixes, 0)
            tokens[:, : padded.shape[1]] = padded
            real = masks.padding(torch.tensor([len(row) for row in suffixes]), longest)
            state = model.step(tokens.to(device), state, real.to(device)).state
        assert isinstance(state, State)
        return add_room(state, slots)

    def source_batch(
        self, pieces: Sequence[Piece], slots: int, config: SearchConfig, *, length: int, masked: bool
    ) -> SourceBatch:
        """Encode pieces and prepare their search."""
        return SourceBatch(
            self.encode(pieces, slots, length=length, masked=masked),
            torch.tensor([self.limit(piece, config) for piece in pieces], device=self.system.device),
            [piece.source_id for piece in pieces],
            [piece.prefix for piece in pieces],
            [self.start if piece.start is None else piece.start for piece in pieces],
            [piece.sampling or config.sampling(piece.source_id) for piece in pieces],
        )

    def placeholder_states(self, length: int) -> Callable[[int, int], States]:
        """States of sources of this length, for a CUDA graph."""

        def make(sources: int, slots: int) -> States:
            source = torch.full((sources, length), self.system.source_tokenizer.specials.end)
            return self.start_states(source, torch.ones_like(source, dtype=torch.bool), slots)

        return make


def shared_prefix(rows: Sequence[list[int]]) -> int:
    """Number of tokens with which all rows begin."""
    first, last = min(rows), max(rows)  # of rows in lexicographic order
    return next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))


def batch_capacity(system: System, length: int, config: SearchConfig) -> int:
    """Number of sources to search at a time where none has more than `length` tokens."""
    return max(1, system.batch_tokens // (length * config.rows))


def search_groups(decoder: Decoder, ordered: Sequence[Piece], config: SearchConfig) -> Iterator[list[Piece]]:
    """Group pieces to be searched together. On a GPU a step of a large batch costs little more: all that fit are one group."""
    if ordered and decoder.system.device.type == "cuda":
        capacity = batch_capacity(decoder.system, decoder.source_length(ordered[0]), config)
        return iter([list(ordered)]) if len(ordered) <= capacity else similar_lengths(ordered)
    return similar_lengths(ordered)


def similar_lengths(ordered: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Start a new group where a piece is less than half as long as the first: every piece takes the memory of the longest."""
    start = 0
    for at, piece in enumerate(ordered):
        if 2 * (len(piece.ids) + 1) < len(ordered[start].ids) + 1:
            yield list(ordered[start:at])
            start = at
    if start < len(ordered):
        yield list(ordered[start:])


@torch.inference_mode()
def search_pieces(decoder: Decoder, pieces: Sequence[Piece], config: SearchConfig) -> Iterator[SearchResult]:
    """Yield the results of pieces, given longest first, as they are finished; at most `batch_capacity` at a time."""
    sources, engines = piece_sources(decoder, pieces, config), decoder.system.engines
    yield from search(decoder.next_token(), sources, config, start=decoder.start, end=decoder.end, engines=engines)


def piece_sources(decoder: Decoder, pieces: Sequence[Piece], config: SearchConfig) -> Sources:
    """The pieces, given longest first, as sources of a search."""
    source_length, max_limit = decoder.source_length(pieces[0]), max(decoder.limit(piece, config) for piece in pieces)
    max_prefix = max(len(piece.prefix) for piece in pieces)
    capacity = batch_capacity(decoder.system, source_length, config)
    captures = decoder.captures
    if captures:  # few shapes, so that captured steps are reused
        capacity = min(capacity, 2 ** (len(pieces) - 1).bit_length())
        source_length, max_limit, max_prefix = round_up(source_length, 16), round_up(max_limit, 32), round_up(max_prefix, 16)
    exceed_capacity = len(pieces) > capacity
    started = 0

    def start_batch(count: int, slots: int) -> SourceBatch | None:
        nonlocal started
        chosen = pieces[started : started + count]
        started += count
        if not chosen:
            return None
        masked = exceed_capacity or captures  # sources that are inserted later may need a mask
        return decoder.source_batch(chosen, slots, config, length=0, masked=masked)

    graph = GraphInputs(source_length, decoder.placeholder_states(source_length), decoder.system.device) if captures else None
    return Sources(start_batch, capacity, max_limit, max_prefix, exceed_capacity, graph)


def round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
