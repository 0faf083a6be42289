"""Vocabularies that the library `tokenizers` runs: all the kinds that we train.

Besides ids it gives spellings: the bytes that each piece stands for, the space before it included. Joined, they
are the text; they make pieces readable and say which word a piece belongs to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from tokenizers import AddedToken, Tokenizer

from heedful.errors import DataError
from heedful.text.bpe_dropout import BpeDropout
from heedful.text.pipelines import BAR, JOINER, SPACES
from heedful.text.specials import Specials, find_special


def byte_letters() -> dict[str, int]:
    """The letter that stands for each byte in byte-level BPE (GPT-2): itself where it prints, else from U+0100 on."""
    printed = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in printed]
    return {chr(byte): byte for byte in printed} | {chr(256 + rank): byte for rank, byte in enumerate(hidden)}


BYTE_OF_LETTER = byte_letters()


def spell_plain(pieces: Sequence[str]) -> list[bytes]:
    return [piece.encode() for piece in pieces]


def spell_barred(pieces: Sequence[str]) -> list[bytes]:
    return [piece.replace(BAR, " ").encode() for piece in pieces]


def spell_bytes(pieces: Sequence[str]) -> list[bytes]:
    def spell(piece: str) -> bytes:
        known = all(letter in BYTE_OF_LETTER for letter in piece)  # a tag may hold other letters
        return bytes(BYTE_OF_LETTER[letter] for letter in piece) if known else piece.encode()

    return [spell(piece) for piece in pieces]


def spell_words(pieces: Sequence[str]) -> list[bytes]:
    spelled, joined = [], False
    for piece in pieces:
        space = "" if joined or piece.startswith(JOINER) else " "
        spelled.append((space + piece.strip(JOINER)).encode())
        joined = piece.endswith(JOINER)
    return spelled


SPELLINGS: dict[str, Callable[[Sequence[str]], list[bytes]]] = {
    "characters": spell_plain,
    "words": spell_words,
    "spaces": spell_words,
    "bpe": spell_barred,
    "unigram": spell_barred,
    "bytes": spell_bytes,
}


class LibraryCodec:
    """Text to ids and back, by a trained tokenizer of the library."""

    def __init__(self, kind: str, library: Tokenizer) -> None:
        library.encode_special_tokens = True  # "<s>" in a text is four characters, not the start of a sentence
        self.kind = kind
        self.library = library
        self.specials = read_specials(library)

    @classmethod
    def read(cls, kind: str, content: dict[str, Any]) -> LibraryCodec:
        return cls(kind, Tokenizer.from_str(json.dumps(content, ensure_ascii=False)))

    def content(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.library.to_str())
        return content

    def __len__(self) -> int:
        return int(self.library.get_vocab_size(with_added_tokens=True))

    @property
    def tags(self) -> dict[str, int]:
        added = self.library.get_added_tokens_decoder()
        return {token.content: id for id, token in sorted(added.items()) if not token.special}

    @cached_property
    def vocabulary(self) -> list[str]:
        ids = self.library.get_vocab(with_added_tokens=True)
        return sorted(ids, key=ids.__getitem__)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self.library.encode_batch_fast(list(texts), add_special_tokens=False)]

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        return list(self.library.decode_batch([list(row) for row in rows], skip_special_tokens=False))

    def spell(self, ids: Sequence[int]) -> list[bytes]:
        return SPELLINGS[self.kind]([self.vocabulary[id] for id in ids])

    def sampler(self, dropout: float) -> BpeDropout:
        return BpeDropout(self.library, SPACES[self.kind], self.tags, dropout)


def read_specials(library: Tokenizer) -> Specials:
    vocabulary = library.get_vocab(with_added_tokens=True)
    found = {role: find_special(role, vocabulary) for role in Specials._fields}
    missing = [role for role, id in found.items() if id is None]
    if missing:
        raise DataError(
            f"the tokenizer has no token for {', '.join(missing)}; expected one each for {', '.join(Specials._fields)}",
            hint="train it again with heed, which adds them",
        )
    return Specials(**{role: id for role, id in found.items() if id is not None})


def add_tags(library: Tokenizer, kind: str, tags: Sequence[str]) -> None:
    """Give each tag an id of its own. Where a piece carries the space before it, a tag takes the space after it."""
    library.add_tokens([AddedToken(tag, rstrip=kind in SPACES, normalized=False, special=False) for tag in tags])
