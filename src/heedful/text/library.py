"""Vocabularies that the library `tokenizers` runs: all the kinds that we train.

Besides ids it gives spellings: the bytes that each piece stands for, the space before it included. Joined, they
are the text; they make pieces readable and say which word a piece belongs to.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from tokenizers import AddedToken, Tokenizer, models

from heedful.errors import DataError, lookup
from heedful.text.bpe_dropout import BpeDropout
from heedful.text.normalize import FORMS, describe_normalizing, normalizing_steps
from heedful.text.pipelines import BAR, JOINER, PIPELINES, SPACES
from heedful.text.specials import SPECIALS, UNK, Specials, find_special
from heedful.text.tags import check_tags


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
        with refusing_panics():
            return [encoding.ids for encoding in self.library.encode_batch_fast(list(texts), add_special_tokens=False)]

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        with refusing_panics():
            return list(self.library.decode_batch([list(row) for row in rows], skip_special_tokens=False))

    def spell(self, ids: Sequence[int]) -> list[bytes]:
        return SPELLINGS[self.kind]([self.vocabulary[id] for id in ids])

    def sampler(self, dropout: float) -> BpeDropout:
        return BpeDropout(self.library, SPACES[self.kind], self.tags, dropout)


@contextmanager
def refusing_panics() -> Iterator[None]:
    """A panic of the library's Rust code as a DataError; it is no Exception, so nothing else would catch it."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ == "PanicException":
            raise DataError(f"the tokenizer failed: {error}", hint="its tokenizer.json may be damaged") from error
        raise


def rebuild(kind: str, content: dict[str, Any], normalization: str) -> Tokenizer:
    """The tokenizer that `content`, a tokenizer.json without our header, describes.

    Only the vocabulary is taken from it. Everything else (normalizer, regular expressions, decoder) is made as for a new
    tokenizer of this kind, and the result must be written as the very same content: so no file can bring a pipeline, a
    regular expression or an id of its own."""
    steps = lookup(normalization, NORMALIZATIONS, "normalization")
    library = PIPELINES[kind](steps)
    vocabulary = content["model"]["vocab"]
    with refusing_panics():
        library.model = MODELS[kind](library.model, vocabulary, content["model"].get("merges"))
        library.add_special_tokens(list(SPECIALS))
        add_tags(library, kind, [token["content"] for token in content["added_tokens"][len(SPECIALS) :]])
        written = json.loads(library.to_str())
    differing = sorted(key for key in written.keys() | content.keys() if written.get(key) != content.get(key))
    if differing:
        raise DataError(f"its {', '.join(differing)} is not what a tokenizer of kind {kind!r} has")
    ids = library.get_vocab(with_added_tokens=True)
    if sorted(ids.values()) != list(range(len(ids))):
        raise DataError(f"its {len(ids)} pieces do not have the ids 0 to {len(ids) - 1}")
    return library


def checked_ids(vocabulary: Any) -> dict[str, int]:
    """{piece: id}, the ids being 0, 1, 2, …"""
    if not isinstance(vocabulary, dict) or "" in vocabulary or set(vocabulary.values()) != set(range(len(vocabulary))):
        raise DataError("its vocabulary does not have the ids 0, 1, 2, …, one for each piece")
    return vocabulary


def with_merges(blank: Any, vocabulary: Any, merges: Any) -> models.Model:
    ids = checked_ids(vocabulary)
    for left, right in merges:
        if left not in ids or right not in ids or left + right not in ids:
            raise DataError(f"its merge of {left!r} and {right!r} is not in the vocabulary")
    pairs = [(left, right) for left, right in merges]
    return models.BPE(vocab=ids, merges=pairs, unk_token=blank.unk_token, fuse_unk=blank.fuse_unk)


def with_words(blank: Any, vocabulary: Any, merges: Any) -> models.Model:
    return models.WordLevel(checked_ids(vocabulary), blank.unk_token)


def with_scores(blank: Any, vocabulary: Any, merges: Any) -> models.Model:
    pieces = [(piece, float(score)) for piece, score in vocabulary]
    checked_ids({piece: id for id, (piece, _) in enumerate(pieces)})
    if len({piece for piece, _ in pieces}) < len(pieces) or not all(math.isfinite(score) for _, score in pieces):
        raise DataError("its pieces do not have one finite score each")
    return models.Unigram(pieces, SPECIALS.index(UNK), False)


MODELS: dict[str, Callable[[Any, Any, Any], models.Model]] = {
    "characters": with_merges,
    "words": with_words,
    "spaces": with_words,
    "bpe": with_merges,
    "unigram": with_scores,
    "bytes": with_merges,
}
NORMALIZATIONS = {
    describe_normalizing(form, lowercase): normalizing_steps(form, lowercase) for form in FORMS for lowercase in (False, True)
}


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
    check_tags(tags)
    library.add_tokens([AddedToken(tag, rstrip=kind in SPACES, normalized=False, special=False) for tag in tags])
