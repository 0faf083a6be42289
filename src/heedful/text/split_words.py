"""The words of a text with their character offsets: split at white space, and optionally at punctuation.

    "Well, don't!"     ->   Well,  don't!
    with punctuation   ->   Well  ,  don't  !

Punctuation (and symbols) at the beginning and the end of a word becomes words of its own; a run of one mark, such as "...", is
one word. Punctuation inside a word, as in "don't" and "3.14", stays.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

from heedful.text.words import PUNCTUATION

WORD = re.compile(r"\S+")
RUN = re.compile(r"(.)\1*", re.DOTALL)


class Word(NamedTuple):
    text: str
    start: int  # of its first character
    end: int  # after its last character: text[start:end] is the word


def split_words(text: str, *, punctuation: bool = False) -> list[Word]:
    """The words of a text; punctuation: separate it from words."""
    words = [Word(match[0], match.start(), match.end()) for match in WORD.finditer(text)]
    return [part for word in words for part in split_punctuation(word)] if punctuation else words


def split_punctuation(word: Word) -> Iterator[Word]:
    marks = [unicodedata.category(character)[0] in PUNCTUATION for character in word.text]
    if all(marks):
        yield from runs(word)
        return
    first, last = marks.index(False), len(marks) - marks[::-1].index(False)  # of the part without outer punctuation
    yield from runs(cut(word, 0, first))
    yield cut(word, first, last)
    yield from runs(cut(word, last, len(marks)))


def cut(word: Word, start: int, end: int) -> Word:
    return Word(word.text[start:end], word.start + start, word.start + end)


def runs(marks: Word) -> Iterator[Word]:
    """A word for each run of one mark."""
    return (cut(marks, match.start(), match.end()) for match in RUN.finditer(marks.text))
