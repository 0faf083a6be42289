"""BPE-dropout (Provilkov et al. 2020): while a word is segmented, every merge is dropped with probability p.

    repeat: drop each applicable merge with probability p, apply the first-learned of the rest; stop when none is left

So a model is trained on many segmentations of a word. Here the segmentation is a pure function of (seed, epoch, index):
every word has a pool of segmentations, entry k sampled by a generator keyed by (seed, word, k), and the word at position
t of the text uses entry hash(seed, epoch, index)[t]. Encoding a text then costs one look-up per word.
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

POOL = 64  # segmentations per word; a divisor of 256, so that all entries are equally likely
CACHE_SIZE = 400_000  # segmentations in memory; clearing them only costs time

Pair = tuple[int, int]


class BpeDropout:
    """Encodes like the library's BPE, with merges dropped; `space` is the character that marks a space in its pieces."""

    def __init__(self, library: Tokenizer, space: str, tags: Mapping[str, int], dropout: float) -> None:
        model = json.loads(library.to_str())["model"]
        self.library = library
        self.dropout = dropout
        self.split_tags = TagSplitter(tags)
        self.find_chunks = re.compile(chunk_pattern(space)).findall
        self.ids: dict[str, int] = model["vocab"]
        self.unk = self.ids[model["unk_token"]]
        # pair of ids -> (rank, id of the merged piece); merges are applied in the order of their ranks
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
        """Return entry `entry` of the pool of `chunk`."""
        key = (seed, chunk, entry)
        ids = self.pool.get(key)
        if ids is None:
            if len(self.pool) >= CACHE_SIZE:
                self.pool.clear()
            ids = self.pool[key] = self.segment(chunk, random.Random(f"{seed} {entry} {chunk}").random)
        return ids

    def segment(self, chunk: str, draw: Callable[[], float]) -> list[int]:
        pieces = self.library.pre_tokenizer.pre_tokenize_str(chunk)
        return [id for piece, _ in pieces for id in self.merge(self.character_ids(piece), draw)]

    def character_ids(self, piece: str) -> list[int]:
        """Return one id per character; adjacent unknown characters share one id, as in the library."""
        ids: list[int] = []
        for character in piece:
            id = self.ids.get(character, self.unk)
            if id != self.unk or not ids or ids[-1] != self.unk:
                ids.append(id)
        return ids

    def merge(self, ids: list[int], draw: Callable[[], float]) -> list[int]:
        while True:
            best: Pair | None = None
            position = 0
            for t, pair in enumerate(pairwise(ids)):
                merge = self.merges.get(pair)
                # A merge of lower rank than the best so far needs no random number.
                if merge and (best is None or merge < best) and draw() >= self.dropout:
                    best, position = merge, t
            if best is None:
                return ids
            ids[position : position + 2] = [best[1]]


def draw_bytes(key: tuple[int, int, int], count: int) -> bytes:
    """Return `count` pseudorandom bytes, a function of the key."""
    return hashlib.shake_128(b"%d %d %d" % key).digest(count)
