"""A text as numbers on the disk: read and cut into tokens once, then read again in every epoch, a slice at a time.

    ids of line 0, -1, ids of line 1, -1, …

However long the text is, memory holds a slice of it and one number for each word of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.errors import DataError
from heedful.storage.mapping import collect
from heedful.text.long_lines import encode_lines
from heedful.text.tokenizer import Tokenizer

END_OF_LINE = -1


class Tokens(NamedTuple):
    ids: NDArray[np.int32]  # mapped from a file that has no name and goes with it
    counts: NDArray[np.int64]  # (vocab,): how often each id occurs

    @property
    def total(self) -> int:
        return int(self.counts.sum())


def encode_text(lines: Iterable[str], tokenizer: Tokenizer) -> Tokens:
    counts = np.zeros(len(tokenizer), np.int64)

    def encoded() -> Iterator[NDArray[np.int32]]:
        for some in encode_lines(tokenizer, lines, END_OF_LINE):
            ids = np.fromiter(some, np.int32)
            counts[:] += np.bincount(ids[ids >= 0], minlength=len(counts))
            yield ids

    ids = collect(encoded(), np.int32)
    if not counts.any():
        raise DataError("the text holds no word; expected some to learn vectors of")
    return Tokens(ids, counts)


def token_names(tokenizer: Tokenizer) -> list[str]:
    """One name for every id, no two alike: the words themselves, or pieces in which ▁ stands for a space."""
    if tokenizer.kind != "words":
        return tokenizer.pieces(range(len(tokenizer)))
    content = tokenizer.codec.content()  # a word's spelling depends on its neighbors, its name here does not
    ids: dict[str, int] = content["model"]["vocab"] | {tag["content"]: tag["id"] for tag in content["added_tokens"]}
    return sorted(ids, key=ids.__getitem__)
