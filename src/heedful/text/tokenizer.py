"""A tokenizer: text to ids and back, one file on disk, whatever the vocabulary is made of.

    decode(encode(text)) == text     after normalization, when every piece is known

No special token is added by `encode` and none can be smuggled in by a text that spells one.
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

from heedful.bounds import MAX_VOCAB
from heedful.errors import DataError
from heedful.schema import Config, Count, Probability
from heedful.storage.reading import read_bytes
from heedful.storage.writing import replace_text
from heedful.text.bpe_dropout import BpeDropout
from heedful.text.library import LibraryCodec
from heedful.text.normalize import Form
from heedful.text.sentencepiece import SentencePieceCodec
from heedful.text.specials import END, PAD, START, Specials
from heedful.text.words import without_signs, word_indices

Kind = Literal["characters", "words", "spaces", "bpe", "unigram", "bytes", "sentencepiece"]

# The options that mean something to each kind, besides `shared`.
OPTIONS: dict[Kind, frozenset[str]] = {
    "characters": frozenset({"lowercase", "normalize"}),
    "words": frozenset({"vocab", "lowercase", "normalize", "min_frequency"}),
    "spaces": frozenset({"vocab", "lowercase", "normalize", "min_frequency"}),
    "bpe": frozenset({"vocab", "lowercase", "normalize", "min_frequency", "dropout"}),
    "unigram": frozenset({"vocab", "lowercase", "normalize"}),
    "bytes": frozenset({"vocab", "lowercase", "normalize", "min_frequency", "dropout"}),
    "sentencepiece": frozenset({"file"}),
}

VocabSize = Annotated[int, Field(ge=1, le=MAX_VOCAB)]


PARTS = re.compile(r"\w+|[^\w\s]")  # of a word: its letters, and each punctuation mark
AROUND = re.compile(r"^\W+|\W+$")  # the punctuation around a word
SHOWN = 40  # characters of an unknown word


def cut(word: str) -> str:
    return word if len(word) <= SHOWN else f"{word[:SHOWN]}…"


class TokenizerConfig(Config):
    """Which pieces text is cut into, and how they are learned."""

    kind: Kind = "bpe"
    """Kind of tokenizer."""
    vocab: VocabSize = 8000
    """Maximum vocabulary size, special tokens included; characters are all kept."""
    shared: bool = True
    """One vocabulary for source and target."""
    lowercase: bool = False
    """Lowercase the text."""
    normalize: Form = "nfc"
    """Unicode normalization."""
    min_frequency: Count = 2
    """Minimum frequency of words in the vocabulary, or of BPE merges."""
    dropout: Probability = 0.0
    """BPE-dropout, during training only."""
    file: str | None = None
    """SentencePiece model file."""

    @model_validator(mode="after")
    def options_fit_the_kind(self) -> Self:
        fields = type(self).model_fields
        idle = [
            f"{name} = {getattr(self, name)!r} has no effect with kind = {self.kind!r}"
            for name in sorted(self.model_fields_set - OPTIONS[self.kind] - {"kind", "shared"})
            if getattr(self, name) != fields[name].default
        ]
        if idle:
            raise ValueError(f"{'; '.join(idle)}; it takes: {', '.join(sorted(OPTIONS[self.kind]))}")
        if self.kind == "sentencepiece" and self.file is None:
            raise ValueError("kind = 'sentencepiece' needs file, the path of a SentencePiece model")
        return self


class Header(Config):
    """What tokenizer.json says of itself, besides the vocabulary."""

    format: Literal[1] = 1
    kind: Kind
    normalization: str
    dropout: Probability = 0.0


class Codec(Protocol):
    """A vocabulary at work. `spell` gives the bytes each piece stands for, the space before it included."""

    @property
    def specials(self) -> Specials: ...
    def __len__(self) -> int: ...
    def encode(self, texts: Sequence[str]) -> list[list[int]]: ...
    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]: ...
    def spell(self, ids: Sequence[int]) -> list[bytes]: ...
    def sampler(self, dropout: float) -> BpeDropout: ...
    def content(self) -> dict[str, Any]: ...


class Tokenizer:
    """Made by `train_tokenizer` or `Tokenizer.load`."""

    def __init__(self, header: Header, codec: Codec) -> None:
        self.header = header
        self.codec = codec
        self.specials = codec.specials
        self.silent = {self.specials.pad: PAD, self.specials.start: START, self.specials.end: END}  # id -> name

    @property
    def kind(self) -> str:
        return self.header.kind

    @property
    def description(self) -> str:
        """For score reports, for example 'bpe 8000, nfc, lower-cased'."""
        return f"{self.kind} {len(self)}, {self.header.normalization}"

    def __len__(self) -> int:
        return len(self.codec)

    def encode(self, text: str) -> list[int]:
        """The ids of the pieces of `text`; nothing is added at its ends."""
        return self.encode_many([text])[0]

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each text, in parallel."""
        try:
            return self.codec.encode(texts)
        except (TypeError, RuntimeError, UnicodeEncodeError):
            refuse_half_characters(texts)
            raise

    def encode_sampled(self, text: str, *, seed: int, epoch: int, index: int) -> list[int]:
        """`encode` with BPE-dropout: the segmentation is a pure function of the arguments."""
        if self.header.dropout == 0.0:
            return self.encode(text)
        return self.sampler.encode(text, seed=seed, epoch=epoch, index=index)

    @cached_property
    def sampler(self) -> BpeDropout:
        return self.codec.sampler(self.header.dropout)

    def decode(self, ids: Iterable[int]) -> str:
        """The text that `ids` spell. Padding, start and end are left out; an unknown piece shows as such."""
        return self.decode_many([ids])[0]

    def decode_many(self, rows: Iterable[Iterable[int]]) -> list[str]:
        return self.codec.decode([[int(id) for id in row if int(id) not in self.silent] for row in rows])

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Every id made readable: a space shows as ▁, half a character as \\xc3."""
        return [
            self.silent[id] if id in self.silent else spelling.decode(errors="backslashreplace").replace(" ", "▁")
            for id, spelling in self.spell(ids)
        ]

    def word_of(self, ids: Iterable[int]) -> list[int]:
        """For each id the index of the word of `decode(ids).split()` that it belongs to; -1 for padding, start and
        end. A space belongs to the word after it."""
        spelled = self.spell(ids)
        words = iter(word_indices([spelling for id, spelling in spelled if id not in self.silent]))
        return [-1 if id in self.silent else next(words) for id, _ in spelled]

    def spoken_word_of(self, ids: Iterable[int]) -> list[int]:
        """As `word_of`, but -1 also for the signs of a word that has more than signs."""
        numbers = [int(id) for id in ids]
        return without_signs([spelling for _, spelling in self.spell(numbers)], self.word_of(numbers))

    def unknown_words(self, text: str) -> list[str]:
        """What the vocabulary lacks in a text: words without the punctuation around them, or only the punctuation if the
        word is known. Long words are cut."""
        if self.specials.unk not in self.encode(text):
            return []
        words = list(dict.fromkeys(text.split()))
        strange = [word for word, ids in zip(words, self.encode_many(words), strict=True) if self.specials.unk in ids]
        return list(dict.fromkeys(cut(part) for word in strange for part in self.unknown_parts(word)))

    def unknown_parts(self, word: str) -> list[str]:
        """Of a word with an unknown piece: the word without punctuation, or the unknown punctuation, or else all of it."""
        unknown, core = self.specials.unk, AROUND.sub("", word)
        if unknown in self.encode(core):
            return [core]
        if self.encode(word) == [unknown]:  # it is one piece
            return [word]
        parts = PARTS.findall(word)
        return [part for part, ids in zip(parts, self.encode_many(parts), strict=True) if unknown in ids] or [word]

    def spell(self, ids: Iterable[int]) -> list[tuple[int, bytes]]:
        """Each id with its spelling, which is empty for padding, start and end."""
        numbers = [int(id) for id in ids]
        spellings = iter(self.codec.spell([id for id in numbers if id not in self.silent]))
        return [(id, b"" if id in self.silent else next(spellings)) for id in numbers]

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of what decides ids: two tokenizers that share it encode and decode alike."""
        content = [self.kind, self.codec.content()]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def to_json(self) -> str:
        """The library's own file with our header in it; the library refuses unknown keys, but not in its model."""
        content = self.codec.content()
        content["model"] = {"heedful": self.header.model_dump(), **content["model"]}
        return json.dumps(content, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Tokenizer:
        content = json.loads(text)
        header = Header(**content["model"].pop("heedful"))
        if header.dropout and "dropout" not in OPTIONS[header.kind]:
            raise DataError(f"it has dropout {header.dropout}, which kind {header.kind!r} cannot have")
        return cls(header, CODECS[header.kind](content, header.normalization))

    def save(self, path: Path | str) -> None:
        """Whole or not at all, also when the process dies meanwhile."""
        replace_text(Path(path), self.to_json())

    @classmethod
    def load(cls, path: Path | str) -> Tokenizer:
        hint = "a tokenizer.json is written by heed train; copy it again from the run, or train again"
        try:
            return cls.from_json(read_bytes(Path(path)).decode())
        except OSError as error:
            raise DataError(f"cannot read the tokenizer {str(path)!r}: {error.strerror}", hint) from error
        except Exception as error:  # the library's own errors are bare Exceptions
            problem = f"{type(error).__name__}: {str(error).splitlines()[0]}" if str(error) else type(error).__name__
            raise DataError(f"{str(path)!r} is not a tokenizer of heedful ({problem})", hint) from error

    def __reduce__(self) -> tuple[Callable[[str], Tokenizer], tuple[str]]:
        return Tokenizer.from_json, (self.to_json(),)


def refuse_half_characters(texts: Sequence[str]) -> None:
    for number, text in enumerate(texts, start=1):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"text {number} holds {text[error.start]!r}, half of a character; expected whole ones",
                hint="the text was probably cut in the middle of a character",
            ) from error


CODECS: dict[Kind, Callable[[dict[str, Any], str], Codec]] = {
    "characters": partial(LibraryCodec.read, "characters"),
    "words": partial(LibraryCodec.read, "words"),
    "spaces": partial(LibraryCodec.read, "spaces"),
    "bpe": partial(LibraryCodec.read, "bpe"),
    "unigram": partial(LibraryCodec.read, "unigram"),
    "bytes": partial(LibraryCodec.read, "bytes"),
    "sentencepiece": SentencePieceCodec.read,
}
