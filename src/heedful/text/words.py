"""The word of each piece, to turn alignments of pieces into alignments of words."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

PUNCTUATION = {"P", "S"}  # punctuation and symbols


def word_indices(pieces: Sequence[bytes]) -> list[int]:
    """Return, for each piece, the index of its word in the joined text, as split by str.split().
    A piece of several words belongs to the first; a piece of spaces to the word after it, at the end to the last."""
    text = b"".join(pieces).decode("utf-8", "surrogateescape")  # each invalid byte becomes one character
    words: list[int] = []  # the word of every byte, -1 for a space
    word, inside = -1, False
    for character in text:
        if character.isspace():
            inside = False
        elif not inside:
            word, inside = word + 1, True
        words += [word if inside else -1] * len(character.encode("utf-8", "surrogateescape"))
    indices, position, latest = [], 0, -1
    for piece in pieces:
        own = [index for index in words[position : position + len(piece)] if index >= 0]
        indices.append(own[0] if own else max(min(latest + 1, word), 0))
        latest = own[-1] if own else latest
        position += len(piece)
    return indices


def mask_punctuation(pieces: Sequence[bytes], words: Sequence[int]) -> list[int]:
    """Return `words` with -1 for punctuation attached to a word, such as the mark of "dogs?": attention to it is not
    evidence for an alignment of "dogs"."""
    classes = [character_classes(piece) for piece in pieces]
    lexical = {word for word, own in zip(words, classes, strict=True) if not own <= PUNCTUATION}
    return [-1 if own and own <= PUNCTUATION and word in lexical else word for word, own in zip(words, classes, strict=True)]


def character_classes(piece: bytes) -> set[str]:
    """Return the first letters of the Unicode categories of the characters, without spaces; a partial character is C."""
    text = piece.decode("utf-8", "surrogateescape")
    return {unicodedata.category(character)[0] for character in text if not character.isspace()}
