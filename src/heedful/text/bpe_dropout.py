"""BPE-dropout (Provilkov et al. 2020): while a word is put together, every merge is left out with probability p.

    repeat: of the merges that apply and survive this round's draw, do the one learned first; stop when none is left

A model then sees a word in many segmentations. Here which one is a pure function of (seed, epoch, index): every
word has a pool of segmentations, entry k drawn by a generator keyed by (seed, word, k), and the word at position t
of the text takes entry hash(seed, epoch, index)[t]. A text then costs one look-up a word.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Callable, Mapping
from itertools import pairwise

from tokenizers import Tokenizer

from heedful.text.pipelines import chunk_pattern
from heedful.text.tags import TagSplitter

POOL = 64  # segmentations a word; a divisor of 256, so that every entry is as likely
REMEMBERED = 400_000  # segmentations in memory; forgetting them changes nothing but time

Pair = tuple[int, int]


class BpeDropout:
    """Encodes as the library's BPE does, merges dropped; `space` is what its pieces begin with after a space."""

    def __init__(self, library: Tokenizer, space: str, tags: Mapping[str, int], dropout: float) -> None:
        model = json.loads(library.to_str())["model"]
        self.library = library
        self.dropout = dropout
        self.split_tags = TagSplitter(tags)
        self.find_chunks = re.compile(chunk_pattern(space)).findall
        self.ids: dict[str, int] = model["vocab"]
        self.unk = self.ids[model["unk_token"]]
        # pair of ids -> (rank, id of the merged piece): what is learned first is done first
        self.merges: dict[Pair, Pair] = {
            (self.ids[left], self.ids[right]): (rank, self.ids[left + right])
            for rank, (left, right) in enumerate(model["merges"])
        }
        self.pool: dict[tuple[int, str, int], list[int]] = {}

    def encode(self, text: str, *, seed: int, epoch: int, index: int) -> list[int]:
        normalize = self.library.normalizer.normalize_str
        parts: list[int | list[str]] = [
            part if isinstance(part, int) else self.find_chunks(normalize(part)) for part in self.split_tags(text)
        ]
        draws = iter(draw_bytes((seed, epoch, index), sum(len(part) for part in parts if isinstance(part, list))))
        ids: list[int] = []
        for part in parts:
            if isinstance(part, int):
                ids.append(part)
                continue
            for chunk, draw in zip(part, draws, strict=False):
                ids += self.segmentation(seed, chunk, draw % POOL)
        return ids

    def segmentation(self, seed: int, chunk: str, entry: int) -> list[int]:
        """Entry `entry` of the pool of `chunk`."""
        key = (seed, chunk, entry)
        found = self.pool.get(key)
        if found is None:
            if len(self.pool) >= REMEMBERED:
                self.pool.clear()
            found = self.pool[key] = self.segment(chunk, random.Random(f"{seed} {entry} {chunk}").random)
        return found

    def segment(self, chunk: str, draw: Callable[[], float]) -> list[int]:
        pieces = self.library.pre_tokenizer.pre_tokenize_str(chunk)
        return [id for piece, _ in pieces for id in self.merge(self.letters(piece), draw)]

    def letters(self, piece: str) -> list[int]:
        """One id a character; unknown characters side by side are one unknown, as the library fuses them."""
        ids: list[int] = []
        for letter in piece:
            id = self.ids.get(letter, self.unk)
            if id != self.unk or not ids or ids[-1] != self.unk:
                ids.append(id)
        return ids

    def merge(self, ids: list[int], draw: Callable[[], float]) -> list[int]:
        while True:
            best: Pair | None = None
            place = 0
            for t, pair in enumerate(pairwise(ids)):
                merge = self.merges.get(pair)
                # A merge that would not be chosen anyway needs no draw.
                if merge and (best is None or merge < best) and draw() >= self.dropout:
                    best, place = merge, t
            if best is None:
                return ids
            ids[place : place + 2] = [best[1]]


def draw_bytes(key: tuple[int, int, int], count: int) -> bytes:
    """`count` random bytes, always the same for the same key."""
    return hashlib.shake_128(b"%d %d %d" % key).digest(count)
