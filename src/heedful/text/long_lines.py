"""Text of any length in bounded memory: a tokenizer takes a few hundred bytes for each character that it sees at once.

Lines are encoded some at a time, and a line of more than MAX_CHARACTERS is cut at a space. Between two words the cut changes
nothing: the space belongs to the token after it, as it does at the beginning of a text. Only where a line has no single
space within reach is a word cut in two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Protocol

MAX_CHARACTERS = 1 << 20
MAX_LINES = 10_000  # encoded at a time


class Encodes(Protocol):
    """What is needed of a tokenizer."""

    @property
    def kind(self) -> str: ...
    def encode_many(self, texts: Sequence[str], /) -> list[list[int]]: ...


def encode_lines(tokenizer: Encodes, lines: Iterable[str], end: int) -> Iterator[Iterator[int]]:
    """The ids of all lines, with `end` after each line, some lines at a time."""
    keep_spaces = tokenizer.kind == "characters"  # whose spaces are tokens of their own
    for batch in batches(lines, keep_spaces):
        rows = tokenizer.encode_many([text for text, _ in batch])
        yield chain.from_iterable((*row, end) if is_last else row for row, (_, is_last) in zip(rows, batch, strict=True))


def batches(lines: Iterable[str], keep_spaces: bool) -> Iterator[list[tuple[str, bool]]]:
    """Pieces of lines, each with whether it is the last of its line; a list has at most MAX_CHARACTERS and MAX_LINES."""
    batch: list[tuple[str, bool]] = []
    size = 0
    for line in lines:
        pieces = list(cut(line, keep_spaces=keep_spaces))
        for number, piece in enumerate(pieces, start=1):
            if batch and (size + len(piece) > MAX_CHARACTERS or len(batch) == MAX_LINES):
                yield batch
                batch, size = [], 0
            batch.append((piece, number == len(pieces)))
            size += len(piece)
    if batch:
        yield batch


def cut(line: str, *, keep_spaces: bool = False) -> Iterator[str]:
    """Pieces of at most MAX_CHARACTERS; the space at which a line is cut is left out, unless it is kept before the cut."""
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
    """Where the last space of line[begin:end] stands that has no space on either side."""
    place = line.rfind(" ", begin + 1, end)
    while place > 0 and (line[place - 1] == " " or line[place + 1] == " "):
        place = line.rfind(" ", begin + 1, place)
    return place if place > 0 else None
