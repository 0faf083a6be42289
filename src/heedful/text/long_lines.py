"""Encode text of any length in bounded memory: a tokenizer needs a few hundred bytes for each character of a call.

Lines are encoded in batches, and a line of more than MAX_CHARACTERS is split at a space. Splitting between two words does
not change the ids: the space belongs to the next token, as at the start of a text. Only where MAX_CHARACTERS contain no
single space is a word split.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Protocol

MAX_CHARACTERS = 1 << 20
MAX_LINES = 10_000  # encoded at a time


class LineTokenizer(Protocol):
    """The part of a tokenizer that this module needs."""

    @property
    def kind(self) -> str: ...
    def encode_many(self, texts: Sequence[str], /) -> list[list[int]]: ...


def encode_lines(tokenizer: LineTokenizer, lines: Iterable[str], end: int) -> Iterator[Iterator[int]]:
    """Yield the ids of all lines, with `end` after each line, one batch of lines at a time."""
    keep_spaces = tokenizer.kind == "characters"  # where spaces are separate tokens
    for batch in batches(lines, keep_spaces):
        rows = tokenizer.encode_many([text for text, _ in batch])
        yield chain.from_iterable((*row, end) if is_last else row for row, (_, is_last) in zip(rows, batch, strict=True))


def batches(lines: Iterable[str], keep_spaces: bool) -> Iterator[list[tuple[str, bool]]]:
    """Yield batches of (part of a line, whether it is the last part), at most MAX_CHARACTERS and MAX_LINES each."""
    batch: list[tuple[str, bool]] = []
    size = 0
    for line in lines:
        pieces = list(split_line(line, keep_spaces=keep_spaces))
        for number, piece in enumerate(pieces, start=1):
            if batch and (size + len(piece) > MAX_CHARACTERS or len(batch) == MAX_LINES):
                yield batch
                batch, size = [], 0
            batch.append((piece, number == len(pieces)))
            size += len(piece)
    if batch:
        yield batch


def split_line(line: str, *, keep_spaces: bool = False) -> Iterator[str]:
    """Yield parts of at most MAX_CHARACTERS, without the spaces between them unless keep_spaces."""
    begin = 0
    while len(line) - begin > MAX_CHARACTERS:
        end = last_single_space(line, begin, begin + MAX_CHARACTERS - 1)
        if end is None:
            yield line[begin : begin + MAX_CHARACTERS]
            begin += MAX_CHARACTERS
        else:
            yield line[begin : end + keep_spaces]
            begin = end + 1
    yield line[begin:]


def last_single_space(line: str, begin: int, end: int) -> int | None:
    """Return the index of the last space of line[begin:end] that has no adjacent space."""
    place = line.rfind(" ", begin + 1, end)
    while place > 0 and (line[place - 1] == " " or line[place + 1] == " "):
        place = line.rfind(" ", begin + 1, place)
    return place if place > 0 else None
