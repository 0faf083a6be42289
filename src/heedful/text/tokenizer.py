"""The tokenizer: encodes text to ids and decodes ids to text, with one file on disk for every kind of vocabulary.

    decode(encode(text)) == text     after normalization, if every piece is in the vocabulary

`encode` adds no special tokens, and text such as "<s>" is never encoded as one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, Self

from pydantic import Field, model_validator

from heedful.config.base import Config, Count, PathName, Probability, Problem, format_value, refuse
from heedful.config.bounds import MAX_VOCAB
from heedful.errors import DataError, HeedfulError
from heedful.storage.reading import read_bytes, reason_of
from heedful.storage.writing import replace_text
from heedful.text.bpe_dropout import BpeDropout
from heedful.text.library import LibraryCodec
from heedful.text.normalize import Form
from heedful.text.sentencepiece import SentencePieceCodec
from heedful.text.specials import END, MASK, PAD, START, Specials
from heedful.text.words import mask_punctuation, word_indices

Kind = Literal["characters", "words", "wordpiece", "spaces", "bpe", "unigram", "bytes", "sentencepiece"]

# The options that have an effect with each kind, besides `shared`.
OPTIONS: dict[Kind, frozenset[str]] = {
    "characters": frozenset({"lowercase", "normalize"}),
    "words": frozenset({"vocab", "lowercase", "normalize", "min_frequency"}),
    "wordpiece": frozenset({"vocab", "lowercase", "normalize", "min_frequency"}),
    "spaces": frozenset({"vocab", "lowercase", "normalize", "min_frequency"}),
    "bpe": frozenset({"vocab", "lowercase", "normalize", "min_frequency", "dropout"}),
    "unigram": frozenset({"vocab", "lowercase", "normalize"}),
    "bytes": frozenset({"vocab", "lowercase", "normalize", "min_frequency", "dropout"}),
    "sentencepiece": frozenset({"file"}),
}

VocabSize = Annotated[int, Field(ge=1, le=MAX_VOCAB)]


PARTS = re.compile(r"\w+|[^\w\s]")  # parts of a word: its letters, and each punctuation mark
OUTER_PUNCTUATION = re.compile(r"^\W+|\W+$")  # the punctuation around a word
MAX_SHOWN = 40  # characters of an unknown word in messages


def shorten(word: str) -> str:
    return word if len(word) <= MAX_SHOWN else f"{word[:MAX_SHOWN]}…"


class TokenizerConfig(Config):
    """Kind of tokenizer and options for training it."""

    kind: Kind = "bpe"
    """Kind of tokenizer."""
    vocab: VocabSize = 8000
    """Maximum vocabulary size, including special tokens; must have room for all characters of the text."""
    shared: bool = True
    """One vocabulary for source and target."""
    lowercase: bool = False
    """Lowercase the text."""
    normalize: Form = "nfc"
    """Unicode normalization."""
    min_frequency: Count = 2
    """Minimum frequency of words in the vocabulary, or of merges of BPE and WordPiece."""
    dropout: Probability = 0.0
    """BPE-dropout, during training only."""
    file: PathName | None = None
    """SentencePiece model file."""

    @model_validator(mode="after")
    def options_fit_the_kind(self) -> Self:
        fields = type(self).model_fields
        known = ", ".join(sorted(OPTIONS[self.kind]))
        problems = [
            Problem(name, f"given {format_value(value)}, but has no effect with kind = {self.kind!r}; its options are: {known}")
            for name in sorted(self.model_fields_set - OPTIONS[self.kind] - {"kind", "shared"})
            if (value := getattr(self, name)) != fields[name].default
        ]
        if self.kind == "sentencepiece" and self.file is None:
            problems.append(Problem("file", "missing, expected the path of a SentencePiece model for kind = 'sentencepiece'"))
        refuse(problems)
        return self


class Header(Config):
    """Our metadata in tokenizer.json."""

    format: Literal[1] = 1
    kind: Kind
    normalization: str
    dropout: Probability = 0.0


class Codec(Protocol):
    """What a tokenizer needs of a vocabulary; `piece_bytes` returns the bytes of each piece, including the space before it."""

    @property
    def specials(self) -> Specials: ...
    def __len__(self) -> int: ...
    def encode(self, texts: Sequence[str]) -> list[list[int]]: ...
    def offsets(self, text: str) -> list[tuple[int, int]]: ...
    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]: ...
    def piece_bytes(self, ids: Sequence[int]) -> list[bytes]: ...
    def sampler(self, dropout: float) -> BpeDropout: ...
    def content(self) -> dict[str, Any]: ...


class Tokenizer:
    """A trained tokenizer, from `train_tokenizer` or `Tokenizer.load`."""

    def __init__(self, header: Header, codec: Codec) -> None:
        self.header = header
        self.codec = codec
        self.specials = codec.specials
        self.control_tokens = {self.specials.pad: PAD, self.specials.start: START, self.specials.end: END}  # id -> name

    @property
    def kind(self) -> str:
        return self.header.kind

    @property
    def description(self) -> str:
        """Description for score reports, for example 'bpe 8000, nfc, lower-cased'."""
        return f"{self.kind} {len(self)}, {self.header.normalization}"

    def __len__(self) -> int:
        return len(self.codec)

    def encode(self, text: str) -> list[int]:
        """Return the ids of the pieces of `text`, without start and end tokens."""
        return self.encode_many([text])[0]

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode each text, in parallel. For the words of a sentence, returns the pieces of each word: joined, they are
        the pieces of the sentence (in `characters` without the spaces)."""
        try:
            return self.codec.encode(texts)
        except (TypeError, RuntimeError, UnicodeEncodeError):
            refuse_surrogates(texts)
            raise

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Return the characters [start, end) of each piece of `encode(text)` in `text`, as it was before normalization.
        White space at the ends of a piece is left out. A piece that only marks a space or its absence has an empty span;
        pieces of one character have the same span."""
        try:
            return self.codec.offsets(text)
        except (TypeError, RuntimeError, UnicodeEncodeError):
            refuse_surrogates([text])
            raise

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        """The ids of each word as it is encoded inside a text, after a space; at least one for each word."""
        return [ids or [self.specials.unk] for ids in self.encode_many(words)]

    def encode_sampled(self, text: str, *, seed: int, epoch: int, index: int) -> list[int]:
        """Encode with BPE-dropout; the segmentation is a pure function of the arguments."""
        if self.header.dropout == 0.0:
            return self.encode(text)
        return self.sampler.encode(text, seed=seed, epoch=epoch, index=index)

    @cached_property
    def sampler(self) -> BpeDropout:
        return self.codec.sampler(self.header.dropout)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of `ids`, without padding, start and end; unknown tokens become <unk>."""
        return self.decode_many([ids])[0]

    def decode_many(self, rows: Iterable[Iterable[int]]) -> list[str]:
        return self.codec.decode([[int(id) for id in row if int(id) not in self.control_tokens] for row in rows])

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return every id as a readable string: a space becomes ▁, a partial character \\xc3."""
        names = self.control_tokens if self.specials.mask is None else {**self.control_tokens, self.specials.mask: MASK}
        return [
            names[id] if id in names else piece.decode(errors="backslashreplace").replace(" ", "▁")
            for id, piece in self.piece_bytes(ids)
        ]

    def word_of(self, ids: Iterable[int]) -> list[int]:
        """Return, for each id, the index of its word in `decode(ids).split()`; -1 for padding, start and end.
        A space belongs to the word after it."""
        rows = self.piece_bytes(ids)
        words = iter(word_indices([piece for id, piece in rows if id not in self.control_tokens]))
        return [-1 if id in self.control_tokens else next(words) for id, _ in rows]

    def unpunctuated_word_of(self, ids: Iterable[int]) -> list[int]:
        """As `word_of`, but -1 also for punctuation attached to a word."""
        numbers = [int(id) for id in ids]
        return mask_punctuation([piece for _, piece in self.piece_bytes(numbers)], self.word_of(numbers))

    def unknown_words(self, text: str) -> list[str]:
        """Return the words of a text that are not in the vocabulary, without the punctuation around them, or only the
        punctuation if the word is known. Long words are shortened."""
        if self.specials.unk not in self.encode(text):
            return []
        words = list(dict.fromkeys(text.split()))
        unknown = [word for word, ids in zip(words, self.encode_many(words), strict=True) if self.specials.unk in ids]
        return list(dict.fromkeys(shorten(part) for word in unknown for part in self.unknown_parts(word)))

    def unknown_parts(self, word: str) -> list[str]:
        """Return the unknown part of a word: the word without punctuation, or the punctuation, or else all of it."""
        unknown, core = self.specials.unk, OUTER_PUNCTUATION.sub("", word)
        if unknown in self.encode(core):
            return [core]
        if self.encode(word) == [unknown]:  # a single piece
            return [word]
        parts = PARTS.findall(word)
        return [part for part, ids in zip(parts, self.encode_many(parts), strict=True) if unknown in ids] or [word]

    def piece_bytes(self, ids: Iterable[int]) -> list[tuple[int, bytes]]:
        """Return each id with the bytes of its piece; empty for padding, start and end."""
        numbers = [int(id) for id in ids]
        pieces = iter(self.codec.piece_bytes([id for id in numbers if id not in self.control_tokens]))
        return [(id, b"" if id in self.control_tokens else next(pieces)) for id in numbers]

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything that determines ids: tokenizers with the same one encode and decode identically."""
        content = [self.kind, self.codec.content()]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def to_json(self) -> str:
        """Return the library's own file with our header in "model", where the library accepts unknown keys."""
        content = self.codec.content()
        content["model"] = {"heedful": self.header.model_dump(), **content["model"]}
        return json.dumps(content, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Tokenizer:
        content = json.loads(text)
        header = Header(**content["model"].pop("heedful"))
        if header.dropout and "dropout" not in OPTIONS[header.kind]:
            raise DataError(f"it has dropout {header.dropout}, which kind {header.kind!r} does not support")
        return cls(header, CODECS[header.kind](content, header.normalization))

    def save(self, path: Path | str) -> None:
        """Write the file atomically."""
        replace_text(Path(path), self.to_json())

    @classmethod
    def load(cls, path: Path | str) -> Tokenizer:
        hint = "restore the file from a backup, or train again"
        try:
            return cls.from_json(read_bytes(Path(path)).decode())
        except OSError as error:
            raise DataError(f"cannot read the tokenizer {str(path)!r}: {reason_of(error)}", hint) from error
        except Exception as error:  # the library's own errors are bare Exceptions
            raise DataError(f"{str(path)!r} is not a tokenizer of heedful: {describe_error(error)}", hint) from error

    def __reduce__(self) -> tuple[Callable[[str], Tokenizer], tuple[str]]:
        return Tokenizer.from_json, (self.to_json(),)


def describe_error(error: Exception) -> str:
    """Why the content is not a tokenizer, in one line."""
    if isinstance(error, KeyError):
        return f"its key {error.args[0]!r} is missing"
    if isinstance(error, RecursionError):
        return "it is too deeply nested"
    text = str(error).splitlines()[0] if str(error) else ""
    return text if isinstance(error, HeedfulError) else ": ".join(filter(None, (type(error).__name__, text)))


def refuse_surrogates(texts: Sequence[str]) -> None:
    for number, text in enumerate(texts, start=1):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            byte = ord(text[error.start]) - 0xDC00
            if 0x80 <= byte <= 0xFF:  # Python's stand-in for a byte of the command line that it cannot decode
                raise DataError(
                    f"text {number} contains the byte 0x{byte:02x}, which is not UTF-8; expected text in UTF-8",
                    hint="convert the text to UTF-8, for example with iconv",
                ) from error
            raise DataError(
                f"text {number} contains {text[error.start]!r}, half of a surrogate pair; expected complete characters",
                hint="check where the text was truncated: probably in the middle of a character",
            ) from error


CODECS: dict[Kind, Callable[[dict[str, Any], str], Codec]] = {
    "characters": partial(LibraryCodec.read, "characters"),
    "words": partial(LibraryCodec.read, "words"),
    "wordpiece": partial(LibraryCodec.read, "wordpiece"),
    "spaces": partial(LibraryCodec.read, "spaces"),
    "bpe": partial(LibraryCodec.read, "bpe"),
    "unigram": partial(LibraryCodec.read, "unigram"),
    "bytes": partial(LibraryCodec.read, "bytes"),
    "sentencepiece": SentencePieceCodec.read,
}
