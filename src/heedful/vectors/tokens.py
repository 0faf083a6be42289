"""The encoded text on disk: tokenized once, then read in every epoch, one slice at a time.

    ids of line 0, -1, ids of line 1, -1, …

For a text of any length, memory holds one slice of it and one number for each word of the vocabulary.
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
    ids: NDArray[np.int32]  # memory-mapped from an unnamed temporary file
    counts: NDArray[np.int64]  # (vocab,): how often each id occurs

    @property
    def total(self) -> int:
        return int(self.counts.sum())


def encode_text(lines: Iterable[str], tokenizer: Tokenizer) -> Tokens:
    counts = np.zeros(len(tokenizer), np.int64)

    def encoded() -> Iterator[NDArray[np.int32]]:
        for batch in encode_lines(tokenizer, lines, END_OF_LINE):
            ids = np.fromiter(batch, np.int32)
            counts[:] += np.bincount(ids[ids >= 0], minlength=len(counts))
            yield ids

    ids = collect(encoded(), np.int32)
    if not counts.any():
        raise DataError("the text has no words; expected words to train vectors on")
    return Tokens(ids, counts)


def token_names(tokenizer: Tokenizer) -> list[str]:
    """Return a unique name for every id: the words themselves, or pieces with ▁ for a space."""
    if tokenizer.kind not in ("words", "wordpiece"):
        return tokenizer.pieces(range(len(tokenizer)))
    content = tokenizer.codec.content()  # the bytes of a piece depend on its neighbors, its name in the vocabulary does not
    ids: dict[str, int] = content["model"]["vocab"] | {tag["content"]: tag["id"] for tag in content["added_tokens"]}
    return sorted(ids, key=ids.__getitem__)
