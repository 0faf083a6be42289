"""Encode each distinct word once: the ids of a text are those of its words, joined.

This holds for words between single spaces in every kind that has no token for the space itself: the space belongs to the next
token (see `long_lines.py`). A text is encoded as a whole where it does not hold:

    two spaces in a row, or a space at an end          their tokens depend on the number of spaces
    a word that begins or ends with the space mark     as above; also by NFKC, which makes spaces of other characters
    a tag after the first word                         the space before it is a token of its own
    white space after a tag                            the tag includes it
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from tokenizers import Tokenizer

MAX_CACHED = 1 << 20  # characters of the cached words, some 40 MB

Encode = Callable[[Sequence[str]], list[list[int]]]
Words = dict[str, list[int] | None]  # ids of each word; None: a text with this word is encoded as a whole


class WordCache:
    """The ids of the words that were encoded before.

    encode: encodes texts as a whole; space: the mark of a space at the beginning of tokens, if this kind has one
    """

    def __init__(self, encode: Encode, library: Tokenizer, tags: Mapping[str, int], space: str | None) -> None:
        self.encode_whole, self.library, self.tags, self.space = encode, library, tags, space
        self.clear()

    def clear(self) -> None:
        self.words: Words = {"": None}
        self.characters = 0

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        if self.characters > MAX_CACHED:
            self.clear()
        split = [text.split(" ") for text in texts]
        words = self.words  # of this call: another thread may clear the cache
        missing = [word for word in set().union(*split) if word not in words]
        for word, ids in zip(missing, self.encode_whole(missing), strict=True):
            words[word] = ids if self.is_separable(word) else None
        self.characters += sum(map(len, missing))
        rows = [self.join(parts, words) for parts in split]
        whole = [at for at, row in enumerate(rows) if row is None]
        for at, row in zip(whole, self.encode_whole([texts[at] for at in whole]), strict=True):
            rows[at] = row
        return [row for row in rows if row is not None]

    def join(self, parts: list[str], words: Words) -> list[int] | None:
        """The ids of a text from those of its words; None if they are not the same."""
        tag = self.tags.get(parts[0])
        rows = [words[word] for word in (parts if tag is None else parts[1:])]
        if None in rows or (tag is not None and parts[1:] and parts[1][0].isspace()):
            return None
        ids = list(chain.from_iterable(rows))  # type: ignore[arg-type]
        return ids if tag is None else [tag, *ids]

    def is_separable(self, word: str) -> bool:
        """Whether the ids of this word are the same at any place of a text."""
        if any(tag in word for tag in self.tags):
            return False
        if self.space is None:
            return True
        marked: str = self.library.normalizer.normalize_str(word)
        return not marked.startswith(2 * self.space) and not marked.endswith(self.space)
