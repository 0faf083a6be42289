"""A text as numbers on the disk: read and cut into tokens once, then read again in every epoch, a slice at a time.

    ids of line 0, -1, ids of line 1, -1, …

However long the text is, memory holds a slice of it and one number for each word of the vocabulary.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.errors import DataError
from heedful.text.tokenizer import Tokenizer

END_OF_LINE = -1
CHARACTERS = 1 << 20  # encoded at a time


class Tokens(NamedTuple):
    ids: NDArray[np.int32]  # mapped from a file that has no name and goes with it
    counts: NDArray[np.int64]  # (vocab,): how often each id occurs

    @property
    def total(self) -> int:
        return int(self.counts.sum())


def encode_text(lines: Iterable[str], tokenizer: Tokenizer) -> Tokens:
    counts = np.zeros(len(tokenizer), np.int64)
    try:
        with tempfile.TemporaryFile() as file:
            for chunk in gather(lines):
                rows = tokenizer.encode_many(chunk)
                ids = np.fromiter(chain.from_iterable((*row, END_OF_LINE) for row in rows), np.int32)
                counts += np.bincount(ids[ids >= 0], minlength=len(counts))
                ids.tofile(file)
            file.flush()
            if not counts.any():
                raise DataError("the text holds no word; expected some to learn vectors of")
            return Tokens(np.asarray(np.memmap(file, np.int32, "r")), counts)
    except OSError as error:
        raise DataError(
            f"the text's tokens cannot be written to {tempfile.gettempdir()}: {error.strerror or error}",
            hint="set TMPDIR to a folder with room for four bytes a word",
        ) from error


def gather(lines: Iterable[str]) -> Iterator[list[str]]:
    """Lists of lines of about CHARACTERS characters; a line is never cut."""
    chunk: list[str] = []
    size = 0
    for line in lines:
        chunk.append(line)
        size += len(line)
        if size >= CHARACTERS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def token_names(tokenizer: Tokenizer) -> list[str]:
    """One name for every id, no two alike: the words themselves, or pieces in which ▁ stands for a space."""
    if tokenizer.kind != "words":
        return tokenizer.pieces(range(len(tokenizer)))
    content = tokenizer.codec.content()  # a word's spelling depends on its neighbours, its name here does not
    ids: dict[str, int] = content["model"]["vocab"] | {tag["content"]: tag["id"] for tag in content["added_tokens"]}
    return sorted(ids, key=ids.__getitem__)
