"""Tokenizers of the library `tokenizers`: all kinds that we train.

Besides ids, a codec returns the bytes of each piece, including the space before it. Joined, they are the text; they
are used to display pieces and to find the word of each piece.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models

from heedful.errors import DataError, lookup
from heedful.text.bpe_dropout import BpeDropout
from heedful.text.normalize import FORMS, describe_normalizing, normalizing_steps
from heedful.text.offsets import fit_spans
from heedful.text.pipelines import BAR, CONTINUATION, JOINER, PIPELINES, SPACES
from heedful.text.specials import MASK, SPECIALS, UNK, Specials, find_special
from heedful.text.tags import check_tags
from heedful.text.word_cache import WordCache


def byte_letters() -> dict[str, int]:
    """Return {character: byte} of byte-level BPE (GPT-2): printable bytes as they are, the others from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + rank): byte for rank, byte in enumerate(others)}


BYTE_OF_LETTER = byte_letters()
MASK_BYTES = f" {MASK}".encode()  # it takes the space before it, where pieces include that space


def plain_bytes(pieces: Sequence[str]) -> list[bytes]:
    return [piece.encode() for piece in pieces]


def bar_bytes(pieces: Sequence[str]) -> list[bytes]:
    return [MASK_BYTES if piece == MASK else piece.replace(BAR, " ").encode() for piece in pieces]


def byte_level_bytes(pieces: Sequence[str]) -> list[bytes]:
    def to_bytes(piece: str) -> bytes:
        known = all(character in BYTE_OF_LETTER for character in piece)  # a tag may have other characters
        return bytes(BYTE_OF_LETTER[character] for character in piece) if known else piece.encode()

    return [MASK_BYTES if piece == MASK else to_bytes(piece) for piece in pieces]


def word_bytes(pieces: Sequence[str]) -> list[bytes]:
    rows, joined = [], False
    for piece in pieces:
        space = "" if joined or piece.startswith(JOINER) else " "
        rows.append((space + piece.strip(JOINER)).encode())
        joined = piece.endswith(JOINER)
    return rows


def wordpiece_bytes(pieces: Sequence[str]) -> list[bytes]:
    rows, joined = [], False
    for piece in pieces:
        own = piece.removeprefix(CONTINUATION)
        space = "" if joined or own != piece or own.startswith(JOINER) else " "
        rows.append((space + own.strip(JOINER)).encode())
        joined = own.endswith(JOINER)
    return rows


PIECE_BYTES: dict[str, Callable[[Sequence[str]], list[bytes]]] = {
    "characters": plain_bytes,
    "words": word_bytes,
    "wordpiece": wordpiece_bytes,
    "spaces": word_bytes,
    "bpe": bar_bytes,
    "unigram": bar_bytes,
    "bytes": byte_level_bytes,
}


class LibraryCodec:
    """Encodes and decodes with a trained tokenizer of the library."""

    def __init__(self, kind: str, library: Tokenizer) -> None:
        library.encode_special_tokens = True  # "<s>" in a text is ordinary text, not the start token
        self.kind = kind
        self.library = library
        self.specials = read_specials(library, self.tags)

    @classmethod
    def read(cls, kind: str, content: dict[str, Any], normalization: str) -> LibraryCodec:
        return cls(kind, rebuild(kind, content, normalization))

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
        return self.encode_whole(texts) if self.kind == "characters" else self.word_cache.encode(texts)

    def encode_whole(self, texts: Sequence[str]) -> list[list[int]]:
        with panics_as_errors():
            return [encoding.ids for encoding in self.library.encode_batch_fast(list(texts), add_special_tokens=False)]

    @cached_property
    def word_cache(self) -> WordCache:
        return WordCache(self.encode_whole, self.library, self.tags, SPACES.get(self.kind))

    def offsets(self, text: str) -> list[tuple[int, int]]:
        with panics_as_errors():
            encoding = self.library.encode(text, add_special_tokens=False)
        joined = [self.vocabulary[id].startswith(JOINER) for id in encoding.ids]
        return fit_spans(text, encoding.offsets, self.piece_bytes(encoding.ids), joined)

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        with panics_as_errors():
            return list(self.library.decode_batch([list(row) for row in rows], skip_special_tokens=False))

    def piece_bytes(self, ids: Sequence[int]) -> list[bytes]:
        return PIECE_BYTES[self.kind]([self.vocabulary[id] for id in ids])

    def sampler(self, dropout: float) -> BpeDropout:
        return BpeDropout(self.library, SPACES[self.kind], self.tags, dropout)


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """Turn a panic of the library's Rust code, which is not an Exception, into a DataError."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ == "PanicException":
            raise DataError(
                f"the tokenizer failed: {error}", hint="copy its tokenizer.json again from the run: it may be damaged"
            ) from error
        raise


def rebuild(kind: str, content: dict[str, Any], normalization: str) -> Tokenizer:
    """Rebuild the tokenizer from `content`, a tokenizer.json without our header.

    Only the vocabulary is used. Everything else (normalizer, regular expressions, decoder) is built as for a new tokenizer
    of this kind, and serializing the result must give the same content: so an untrusted file cannot introduce its own
    pipeline, regular expression or ids."""
    steps = lookup(normalization, NORMALIZATIONS, "normalization")
    library = PIPELINES[kind](steps)
    vocabulary = content["model"]["vocab"]
    with panics_as_errors():
        library.model = MODELS[kind](library.model, vocabulary, content["model"].get("merges"))
        library.add_special_tokens(list(SPECIALS))
        add_tags(library, kind, [token["content"] for token in content["added_tokens"][len(SPECIALS) :]])
        rebuilt = json.loads(library.to_str())
    differing = sorted(key for key in rebuilt.keys() | content.keys() if rebuilt.get(key) != content.get(key))
    if differing:
        raise DataError(f"its {', '.join(differing)} differs from a tokenizer of kind {kind!r}")
    ids = library.get_vocab(with_added_tokens=True)
    if sorted(ids.values()) != list(range(len(ids))):
        raise DataError(f"the ids of its {len(ids)} pieces are not 0 to {len(ids) - 1}")
    return library


def check_ids(vocabulary: Any) -> dict[str, int]:
    """Return {piece: id}; DataError unless the ids are 0, 1, 2, …"""
    if not isinstance(vocabulary, dict) or "" in vocabulary or set(vocabulary.values()) != set(range(len(vocabulary))):
        raise DataError("the ids of its vocabulary are not 0, 1, 2, …, one for each piece")
    return vocabulary


def make_bpe(blank: Any, vocabulary: Any, merges: Any) -> models.Model:
    ids = check_ids(vocabulary)
    for left, right in merges:
        if left not in ids or right not in ids or left + right not in ids:
            raise DataError(f"its vocabulary lacks a piece of the merge of {left!r} and {right!r}")
    pairs = [(left, right) for left, right in merges]
    return models.BPE(vocab=ids, merges=pairs, unk_token=blank.unk_token, fuse_unk=blank.fuse_unk)


def make_word_level(blank: Any, vocabulary: Any, merges: Any) -> models.Model:
    return models.WordLevel(check_ids(vocabulary), blank.unk_token)


def make_wordpiece(blank: Any, vocabulary: Any, merges: Any) -> models.Model:
    return models.WordPiece(
        check_ids(vocabulary),
        unk_token=blank.unk_token,
        max_input_chars_per_word=blank.max_input_chars_per_word,
        continuing_subword_prefix=blank.continuing_subword_prefix,
    )


def make_unigram(blank: Any, vocabulary: Any, merges: Any) -> models.Model:
    pieces = [(piece, float(score)) for piece, score in vocabulary]
    check_ids({piece: id for id, (piece, _) in enumerate(pieces)})
    if len({piece for piece, _ in pieces}) < len(pieces) or not all(math.isfinite(score) for _, score in pieces):
        raise DataError("its pieces do not each have one finite score")
    return models.Unigram(pieces, SPECIALS.index(UNK), False)


MODELS: dict[str, Callable[[Any, Any, Any], models.Model]] = {
    "characters": make_bpe,
    "words": make_word_level,
    "wordpiece": make_wordpiece,
    "spaces": make_word_level,
    "bpe": make_bpe,
    "unigram": make_unigram,
    "bytes": make_bpe,
}
NORMALIZATIONS = {
    describe_normalizing(form, lowercase): normalizing_steps(form, lowercase) for form in FORMS for lowercase in (False, True)
}


def read_specials(library: Tokenizer, tags: Mapping[str, int]) -> Specials:
    """Return the ids of the special tokens; the mask token is one of the tags."""
    vocabulary = library.get_vocab(with_added_tokens=True)
    roles = [role for role in Specials._fields if role != "mask"]
    ids = {role: find_special(role, vocabulary) for role in roles}
    missing = [role for role, id in ids.items() if id is None]
    if missing:
        raise DataError(
            f"the tokenizer has no token for {', '.join(missing)}; expected one each for {', '.join(roles)}",
            hint="train it again with `heed train`, which adds them",
        )
    return Specials(**{role: id for role, id in ids.items() if id is not None}, mask=find_special("mask", tags))


def add_tags(library: Tokenizer, kind: str, tags: Sequence[str]) -> None:
    """Add each tag as a token. Where pieces include the space before them, a tag includes the space after it, and the
    mask token also the space before it. In `characters` spaces are pieces of their own, also next to a mask token."""
    check_tags(tags)
    strip = kind in SPACES
    library.add_tokens(
        [AddedToken(tag, lstrip=strip and tag == MASK, rstrip=strip, normalized=False, special=False) for tag in tags]
    )
    if strip and MASK in tags:
        library.decoder = decoders.Sequence([decoders.Replace(MASK, f" {MASK}"), library.decoder])
