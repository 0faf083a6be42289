"""The characters of a text that each piece stands for, from the spans of a tokenizer library.

A library assigns every character that it inserts to a neighbor, and a composed character to the first of its code points:

    text       d)                   e\u0301,
    pieces     d   ￭)               é          ￭,
    library    d   d)               e          e\u0301,
    here       d   )                e\u0301    ,
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

Span = tuple[int, int]


def fit_spans(text: str, spans: Sequence[Span], pieces: Sequence[bytes], joined: Sequence[bool]) -> list[Span]:
    """Return the span of each piece without white space at its ends. A piece without characters of its own in the text, such
    as the space before the first word, has an empty span at the end of the previous one. `joined` is True for a piece with
    a joiner in front, of which only the last character is in the text."""
    fitted: list[Span | None] = []
    previous = 0  # end of the previous span
    for (start, end), piece, after_joiner in zip(spans, pieces, joined, strict=True):
        blank = not piece.strip()
        if start == end or (blank and not text[start:end].isspace()):
            fitted.append(None)
            continue
        while after_joiner and end - start > 1 and (start < previous or is_letter_or_digit(text[start])):
            start += 1
        start, end = strip_space(text, start, end)
        fitted.append((start, end))
        previous = end
    return fill_gaps(text, fitted)


def is_letter_or_digit(character: str) -> bool:
    return unicodedata.category(character)[0] in "LMN"


def strip_space(text: str, start: int, end: int) -> Span:
    """Leave out white space at both ends, unless there is nothing else."""
    own = text[start:end]
    if own.isspace():
        return start, end
    return start + len(own) - len(own.lstrip()), start + len(own.rstrip())


def fill_gaps(text: str, spans: Sequence[Span | None]) -> list[Span]:
    """Extend each span to the code points after it that were composed with it, and a replaced word, of which the library
    knows only the end, to its beginning. None becomes an empty span."""
    covered = {place for span in spans if span for place in range(*span)}
    filled: list[Span] = []
    latest = 0
    for span in spans:
        start, end = span or (latest, latest)
        while span and end < len(text) and end not in covered and is_letter_or_digit(text[end]):
            end += 1
        while start > latest and not text[start - 1].isspace():
            start -= 1
        filled.append((start, end))
        latest = max(latest, end)
    return filled
