"""Split a text that is too long for the model, and join the translations of its parts.

A text that fits is one part. Otherwise it is split at every sentence end, because models are trained on sentences;
a sentence that is still too long is split at the last full stop up to which it fits, or else semicolon or colon, or
else comma, or else space, or else character. Splits come after the white space, so that the parts, joined, are the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

Fits = Callable[[str], bool]

CLOSERS = r"[\"'”’»›)\]」』）】]*"
# In scripts with spaces, punctuation ends a unit only before white space ("3.14", "1,000"); in others always.
SENTENCE = re.compile(rf"[.!?…؟۔।॥։።]+{CLOSERS}\s+|[。！？｡]+{CLOSERS}\s*|\n\s*")
CLAUSE = re.compile(rf"[;:؛]{CLOSERS}\s+|[；：]{CLOSERS}\s*")
COMMA = re.compile(rf"[,،]{CLOSERS}\s+|[，、]{CLOSERS}\s*|\s[-–—]\s+")
SPACE = re.compile(r"\s+")
# Abbreviations, whose full stop does not end a sentence: an initial, or one of these.
ABBREVIATION = re.compile(r"(?:^|[\s(\"'“«])(?:\w|Mr|Mrs|Ms|Dr|Prof|St|No|Nr|vs|e\.g|i\.e|z\.B|d\.h|Sig|Dott|Mme|Sr|Sra)$")


def split_to_fit(text: str, fits: Fits) -> list[str]:
    """Split into parts that fit, except a single character that does not; "".join(parts) is the text."""
    if fits(text):
        return [text]
    return [part for sentence in split_at(text, sentence_ends(text)) for part in shorten(sentence, fits, FINER)]


def join_translations(parts: Sequence[str], translations: Sequence[str]) -> str:
    """Join the translations of the parts, with the white space at the ends of each part.

    Where the source has no space after punctuation ("好。") and the translation's script needs one, it is inserted.
    """
    text = seam = ""
    for part, translation in zip(parts, translations, strict=True):
        inside = part.strip()
        before, after = (part, "") if not inside else part.split(inside, 1)
        words = translation.strip() if inside else ""
        if not before and text and words and not text[-1].isspace() and needs_space(seam, text[-1], words[0]):
            text += " "
        text += before + words + after
        seam = part[-1:]
    return text


def needs_space(seam: str, left: str, right: str) -> bool:
    return is_wide(seam) and not is_wide(left) and not is_wide(right)


def is_wide(character: str) -> bool:
    """Return whether it is a Chinese, Japanese or Korean character, most of which are written without spaces."""
    return unicodedata.east_asian_width(character) in "WF"


def split_at(text: str, ends: Sequence[int]) -> list[str]:
    return [text[start:end] for start, end in pairwise([0, *ends])]


def shorten(text: str, fits: Fits, levels: Sequence[Callable[[str], list[int]]]) -> list[str]:
    """Split into the longest parts that fit, at the first level where possible, at later levels where needed."""
    if not levels or fits(text):
        return [text]
    ends = levels[0](text)
    parts: list[str] = []
    start, number = 0, 0  # start of the part, in characters; index of the next end
    while start < len(text):
        reach = last_fitting_end(text, start, ends, number, fits)
        if reach is None:
            reach = number
            parts.extend(shorten(text[start : ends[reach]], fits, levels[1:]))
        else:
            parts.append(text[start : ends[reach]])
        start, number = ends[reach], reach + 1
    return parts


def last_fitting_end(text: str, start: int, ends: Sequence[int], first: int, fits: Fits) -> int | None:
    """Return the index of the last end up to which text[start:] fits, by doubling and bisection; None if none does."""
    count = 1
    while first + count - 1 < len(ends) and fits(text[start : ends[first + count - 1]]):
        count *= 2
    low, high = first + count // 2 - 1, min(first + count - 1, len(ends))  # low fits, high does not
    while high - low > 1:
        middle = (low + high) // 2
        if fits(text[start : ends[middle]]):
            low = middle
        else:
            high = middle
    return low if low >= first else None


def sentence_ends(text: str) -> list[int]:
    return [end for end in ends_of(SENTENCE, text) if end == len(text) or is_sentence_end(text, end)]


def is_sentence_end(text: str, end: int) -> bool:
    """Return False before a lowercase letter or after an abbreviation, unless there is a newline."""
    before = text[max(end - 40, 0) : end]
    body = before.rstrip()
    if "\n" in before[len(body) :]:
        return True
    return not text[end].islower() and not (body.endswith(".") and ABBREVIATION.search(body[:-1]))


def character_ends(text: str) -> list[int]:
    """Return the ends of characters; combining marks stay with their character."""
    joined = [unicodedata.category(character).startswith("M") or character == "\u200d" for character in text]
    return [end for end in range(1, len(text)) if not joined[end]] + [len(text)]


def ends_of(pattern: re.Pattern[str], text: str) -> list[int]:
    """Return the ends of the pattern's matches and of the text; leading white space is not split off."""
    begin = len(text) - len(text.lstrip())
    return [match.end() for match in pattern.finditer(text, begin) if match.end() < len(text)] + [len(text)]


FINER: tuple[Callable[[str], list[int]], ...] = (
    partial(ends_of, SENTENCE),  # in a text without capitals these are the sentence ends
    partial(ends_of, CLAUSE),
    partial(ends_of, COMMA),
    partial(ends_of, SPACE),
    character_ends,
)
