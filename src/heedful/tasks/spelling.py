"""The spelling of words, which models with `characters` read beside the tokens.

    word      cat                                 its UTF-8 bytes + 1; of a long word its first and its last ones
    bytes     100 98 117 0 0 0 …                  0 is padding

The spelling of a word is given at each of its tokens; special tokens have none, which is all zeros.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from torch import Tensor

from heedful.text.split_words import split_words
from heedful.text.tokenizer import Tokenizer

BYTES = 16  # of the spelling of a word: half of them its first, half its last ones
NO_SPELLING = [0] * BYTES
ENCODE_BATCH = 4096  # words encoded at a time


def spell(word: str) -> list[int]:
    """The bytes of a word + 1, of a long word half of them from its end, padded with 0 to BYTES."""
    content = word.encode("utf-8", "surrogatepass")
    if len(content) > BYTES:
        content = content[: BYTES // 2] + content[-(BYTES // 2) :]
    return [byte + 1 for byte in content] + [0] * (BYTES - len(content))


def used_bytes(spelling: Tensor) -> int:
    """spelling (…, bytes) -> the bytes of its longest word, at least one; 0 if the model reads no spelling."""
    width = spelling.shape[-1]
    return max(int(spelling.reshape(-1, width).any(0).sum()), 1) if width else 0


def encode_distinct(words: Iterable[str], tokenizer: Tokenizer) -> dict[str, list[int]]:
    """The token ids of each word, at least one; each is encoded once."""
    distinct = list(dict.fromkeys(words))
    pieces: dict[str, list[int]] = {}
    for at in range(0, len(distinct), ENCODE_BATCH):
        some = distinct[at : at + ENCODE_BATCH]
        pieces |= zip(some, tokenizer.encode_words(some), strict=True)
    return pieces


def words_of_tokens(texts: Sequence[str], rows: Sequence[Sequence[int]], tokenizer: Tokenizer) -> list[list[str]]:
    """The word of each token of each text, separated by white space; rows: the token ids of each text."""
    split = [split_words(text) for text in texts]
    pieces = encode_distinct((word.text for words in split for word in words), tokenizer)
    found = []
    for text, ids, words in zip(texts, rows, split, strict=True):
        of_tokens = [word.text for word in words for _ in pieces[word.text]]
        if len(of_tokens) != len(ids):  # spaces are tokens, or normalization removed or divided a word
            names, ends = [word.text for word in words] or [""], [word.end for word in words[:-1]]
            of_tokens = [names[bisect_right(ends, start)] for start, _ in tokenizer.offsets(text)]
        found.append(of_tokens)
    return found
