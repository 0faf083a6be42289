"""Plain text as one long sequence of tokens.

Every line is encoded separately and followed by the end token, with every kind of tokenizer: a newline is a token, and
tokenizers are trained on lines. The encoded text is cached by its content and memory-mapped:

    ids              all tokens, concatenated             uint16, or uint32 for large vocabularies
    MANIFEST.json    size and SHA-256, and the number of lines, words, characters and bytes of the text

A text of more than one shard is encoded by several processes, and an interrupted build continues (`encode_shards.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.data.corpus_text import Passage, read_passage
from heedful.data.encode import cache_folder, concatenate_arrays, content_hash, find_or_encode
from heedful.storage.manifest import Damaged, checked_manifest, write_manifest
from heedful.storage.mapping import append_array, map_array
from heedful.storage.writing import create
from heedful.text.long_lines import encode_lines
from heedful.text.tokenizer import Tokenizer

SHARD = 1 << 23  # characters; less text is encoded by one process in about the time that others take to start


class TextStore(NamedTuple):
    """The encoded text of a split."""

    ids: NDArray[Any]  # (tokens,)
    lines: int
    words: int  # separated by white space
    characters: int  # including newlines
    bytes: int  # of UTF-8, including newlines


def open_text(parts: Sequence[Passage], tokenizer: Tokenizer, cache: Path | None = None) -> TextStore:
    """Return the encoded text, from the cache if it is there."""
    folder = (cache or cache_folder()) / "text" / text_key(parts, tokenizer)
    lines = chain.from_iterable(map(read_passage, parts))
    return find_or_encode(folder, find_text, cut_lines(lines, SHARD), TextEncoder(tokenizer), SHARD)


def text_key(parts: Sequence[Passage], tokenizer: Tokenizer) -> str:
    """The name of a store: a hash of what determines its tokens."""
    about = []
    for part in parts:
        options = [*([True] if part.header else []), *([1, *part.split] if part.split else [])]  # 1: the rule of splitting
        about.append([content_hash(part.path), part.column, part.part, *options])
    return sha256(json.dumps([1, about, tokenizer.fingerprint]).encode()).hexdigest()[:32]


def find_text(folder: Path) -> TextStore | None:
    """Load the encoded text; None if it is missing or differs from its manifest."""
    with suppress(OSError, Damaged):
        return load_text(folder)
    return None


def load_text(folder: Path) -> TextStore:
    """Load the encoded text after comparing it with its manifest; OSError if there is none."""
    manifest = checked_manifest(folder)
    try:
        return TextStore(map_array(folder / "ids", manifest["type"]), *manifest["counts"])
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged(f"its manifest cannot be used ({error})") from error


def cut_lines(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    """Cut the lines into shards of at least `size` characters; the last one may have fewer."""
    shard: list[str] = []
    characters = 0
    for line in lines:
        shard.append(line)
        characters += len(line) + 1
        if characters >= size:
            yield shard
            shard, characters = [], 0
    if shard:
        yield shard


class TextEncoder(NamedTuple):
    """Encodes lines into a `TextStore`."""

    tokenizer: Tokenizer

    def describe(self, lines: Sequence[str]) -> str:
        return f"{len(lines):,} lines, the first of which begins with {lines[0][:40]!r}"

    @property
    def kind(self) -> str:
        return "uint16" if len(self.tokenizer) <= 1 << 16 else "uint32"

    def write(self, folder: Path, lines: Sequence[str]) -> None:
        counts = np.zeros(4, np.int64)

        def counted() -> Iterator[str]:
            for line in lines:
                counts[:] += (1, len(line.split()), len(line) + 1, len(line.encode()) + 1)
                yield line

        with create(folder / "ids") as file:
            for ids in encode_lines(self.tokenizer, counted(), self.tokenizer.specials.end):
                append_array(file, np.fromiter(ids, self.kind))
        write_manifest(folder, {"type": self.kind, "counts": counts.tolist()})

    def concatenate(self, shards: Sequence[Path], folder: Path) -> None:
        concatenate_arrays(shards, folder, "ids", self.kind)
        counts = np.sum([checked_manifest(shard)["counts"] for shard in shards], axis=0)  # (4,)
        write_manifest(folder, {"type": self.kind, "counts": counts.tolist()})


def encode_text(tokenizer: Tokenizer, text: str) -> list[int]:
    """Encode a text of any number of lines; the last line is left open unless it ends in a newline."""
    first, *others = tokenizer.encode_many(text.split("\n"))
    return [*first, *chain.from_iterable((tokenizer.specials.end, *row) for row in others)]


def decode_text(tokenizer: Tokenizer, ids: Iterable[int]) -> str:
    lines: list[list[int]] = [[]]
    for token in ids:
        if token == tokenizer.specials.end:
            lines.append([])
        else:
            lines[-1].append(token)
    return "\n".join(tokenizer.decode_many(lines))
