"""Which word of a text each piece belongs to, so that alignments of pieces become alignments of words."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

SIGNS = {"P", "S"}  # punctuation and symbols


def word_indices(spellings: Sequence[bytes]) -> list[int]:
    """For each spelling the index of its word in the joined text, words being what str.split() gives.
    A piece of several words counts to its first; a piece of spaces to the word after it, at the end to the last."""
    text = b"".join(spellings).decode("utf-8", "surrogateescape")  # broken bytes are a character each
    words: list[int] = []  # for every byte its word, -1 for a space
    word, inside = -1, False
    for character in text:
        if character.isspace():
            inside = False
        elif not inside:
            word, inside = word + 1, True
        words += [word if inside else -1] * len(character.encode("utf-8", "surrogateescape"))
    indices, place, latest = [], 0, -1
    for spelling in spellings:
        own = [index for index in words[place : place + len(spelling)] if index >= 0]
        indices.append(own[0] if own else max(min(latest + 1, word), 0))
        latest = own[-1] if own else latest
        place += len(spelling)
    return indices


def without_signs(spellings: Sequence[bytes], words: Sequence[int]) -> list[int]:
    """The same indices, -1 for a piece of signs alone whose word says more: the mark of "dogs?" is no part of what is said by
    "dogs", and who looks at it asks for something else."""
    kinds = [kinds_of(spelling) for spelling in spellings]  # of each piece
    spoken = {word for word, own in zip(words, kinds, strict=True) if not own <= SIGNS}
    return [-1 if own and own <= SIGNS and word in spoken else word for word, own in zip(words, kinds, strict=True)]


def kinds_of(spelling: bytes) -> set[str]:
    """What its characters are, spaces left out, by the first letter of their Unicode category; half a character is C."""
    text = spelling.decode("utf-8", "surrogateescape")
    return {unicodedata.category(character)[0] for character in text if not character.isspace()}
