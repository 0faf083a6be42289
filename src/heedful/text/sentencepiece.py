"""A SentencePiece model file as a tokenizer.

The file defines pieces, normalization and special ids. Special tokens that it lacks (often padding, sometimes the start
token) and tags that are not among its pieces get ids after its vocabulary.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from itertools import count, groupby
from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceProcessor

from heedful.errors import ConfigError, DataError
from heedful.storage.reading import read_bytes, reason_of
from heedful.text.bpe_dropout import BpeDropout
from heedful.text.offsets import fit_spans
from heedful.text.pipelines import BAR
from heedful.text.specials import MASK, SPECIALS, Specials, find_special
from heedful.text.tags import TagSplitter, check_tags

BYTE = re.compile(r"<0x[0-9A-F]{2}>")


class SentencePieceCodec:
    """Encodes and decodes with a SentencePiece model."""

    def __init__(self, model: bytes, tags: Sequence[str] = ()) -> None:
        try:
            self.processor = SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise DataError("the file is not a SentencePiece model") from error
        self.model = model
        self.pieces: list[str] = [self.processor.id_to_piece(id) for id in range(len(self.processor))]
        for id, piece in enumerate(self.pieces):
            if self.processor.is_byte(id) and not BYTE.fullmatch(piece):
                raise DataError(f"the SentencePiece model has the byte piece {piece!r}; expected a name such as <0xC3>")
        self.specials, self.tags, self.size = self.assign_ids(tags)
        self.tag_names = {id: tag for tag, id in self.tags.items()}
        self.split_tags = TagSplitter(self.tags)

    def assign_ids(self, tags: Sequence[str]) -> tuple[Specials, dict[str, int], int]:
        """Return the ids of special tokens and tags: the file's own where it has them, else the next free ones."""
        vocabulary = {piece: id for id, piece in enumerate(self.pieces)}
        free = count(len(self.pieces))
        declared = {
            "pad": self.processor.pad_id(),
            "start": self.processor.bos_id(),
            "end": self.processor.eos_id(),
            "unk": self.processor.unk_id(),
        }
        ids = {}
        for role, id in declared.items():
            own = id if id >= 0 else find_special(role, vocabulary)
            ids[role] = next(free) if own is None else own
        mask = find_special("mask", vocabulary)
        known = vocabulary if mask is None else {**vocabulary, MASK: mask}
        tag_ids = {tag: known[tag] if tag in known else next(free) for tag in tags}
        return Specials(**ids, mask=tag_ids.get(MASK, mask)), tag_ids, next(free)

    @classmethod
    def read(cls, content: dict[str, Any], normalization: str) -> SentencePieceCodec:
        model, tags = base64.b64decode(content["model"]["file"], validate=True), content["model"]["tags"]
        check_tags(tags)
        codec = cls(model, tags)
        if codec.content() != content or normalization_of(model) != normalization:
            raise DataError("it has more content than a SentencePiece model and its tags")
        return codec

    def content(self) -> dict[str, Any]:
        return {
            "model": {
                "type": "SentencePiece",
                "tags": list(self.tags),
                "file": base64.b64encode(self.model).decode(),
            }
        }

    def __len__(self) -> int:
        return self.size

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        parts = [self.split_tags(text) for text in texts]  # for each text: tag ids and stretches of text
        stretches = [part for row in parts for part in row if isinstance(part, str)]
        encoded = iter(self.processor.encode(stretches))
        return [[id for part in row for id in ([part] if isinstance(part, int) else next(encoded))] for row in parts]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        ids: list[int] = []
        spans: list[tuple[int, int]] = []
        for part in self.split_tags.parts(text):
            if isinstance(part.content, int):
                ids.append(part.content)
                spans.append((part.start, part.end))
            else:
                encoding = self.processor.encode(part.content, out_type="offset_mapping")
                ids += encoding["ids"]
                spans += [(part.start + start, part.start + end) for start, end in encoding["offsets"]]
        for index in reversed(range(len(ids) - 1)):  # the library assigns a character to the last of its bytes
            if spans[index][0] == spans[index][1] and ids[index] < len(self.pieces) and self.processor.is_byte(ids[index]):
                spans[index] = spans[index + 1]
        return fit_spans(text, spans, self.piece_bytes(ids), [False] * len(ids))

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        return [self.decode_one(row) for row in rows]

    def decode_one(self, ids: Sequence[int]) -> str:
        parts: list[str] = []
        for tag, group in groupby(ids, key=self.tag_names.get):
            stretch = list(group)
            parts += [self.processor.decode(stretch)] if tag is None else [tag] * len(stretch)
        return " ".join(parts)

    def piece_bytes(self, ids: Sequence[int]) -> list[bytes]:
        names = self.tag_names
        return [f" {names[id]} ".encode() if id in names else self.one_piece_bytes(id) for id in ids]

    def one_piece_bytes(self, id: int) -> bytes:
        if self.processor.is_byte(id):  # <0xC3>
            return bytes.fromhex(self.pieces[id][3:5])
        return self.pieces[id].replace(BAR, " ").encode()

    def sampler(self, dropout: float) -> BpeDropout:
        raise ConfigError(f"dropout {dropout} requires merges; expected a tokenizer of kind bpe or bytes")


def read_model(file: str) -> bytes:
    path = Path(file)
    hint = "set tokenizer.file to a .model file written by SentencePiece"
    try:
        model = read_bytes(path)
    except OSError as error:
        raise DataError(f"cannot read the SentencePiece model {file!r}: {reason_of(error)}", hint) from error
    try:
        if len(SentencePieceCodec(model)) <= len(SPECIALS):
            raise DataError(f"the SentencePiece model {file!r} has no pieces")
    except DataError as error:
        raise DataError(f"{file!r} is not a SentencePiece model", hint) from error
    return model


def normalization_of(model: bytes) -> str:
    """Return the name of the model's normalization, for example 'nmt_nfkc_cf' (which also folds case)."""
    specification = read_field(model, 3)  # ModelProto.normalizer_spec
    name = read_field(specification, 1) if specification else b""  # NormalizerSpec.name
    return {"": "normalized by its file", "identity": "not normalized"}.get(name.decode(), name.decode())


def read_field(message: bytes, number: int) -> bytes:
    """Return the bytes of a length-delimited field of a protocol buffer message; empty if it is absent."""
    position = 0

    def varint() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = message[position]
            position += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    content = b""
    while position < len(message):
        field, wire = divmod(varint(), 8)
        if wire == 0:
            varint()
            continue
        width = varint() if wire == 2 else {1: 8, 5: 4}[wire]
        if field == number:
            content = message[position : position + width]
        position += width
    return content
