"""Files of word vectors, by suffix:

    .txt .vec      the text format of word2vec, which most tools read:   count dim
                                                                         word 0.1 -0.2 …
    .safetensors   the exact values in the tensor "vectors", the words as a JSON list in the metadata

Text is written with nine digits, enough to restore the same 32 bits; it is also read gzipped (.txt.gz) and without the first
line, as in GloVe.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as as_safetensors

from heedful.data.json_text import parse_json
from heedful.errors import ConfigError, DataError
from heedful.storage.reading import read_lines, unreadable
from heedful.storage.writing import output_bytes
from heedful.vectors.table import Vectors

Kind = TypeVar("Kind")


def check_output(path: Path) -> None:
    """Raise before training if the output file could not be written."""
    kind_of(path, WRITERS)
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"--output {path}: the folder {path.parent} does not exist", hint=f"run: mkdir -p {path.parent}")


def kind_of(path: Path, kinds: Mapping[str, Kind]) -> Kind:
    for suffix, kind in kinds.items():
        if path.name.endswith(suffix):
            return kind
    raise ConfigError(f"{path} has an unknown suffix for a vectors file; expected one of: {', '.join(kinds)}")


def save_vectors(vectors: Vectors, path: Path) -> None:
    """Write the file atomically."""
    write = kind_of(path, WRITERS)
    with output_bytes(path) as file:
        write(file, vectors)


def write_text(file: BinaryIO, vectors: Vectors) -> None:
    odd = next((word for word in vectors.words if not word or " " in word or "\n" in word), None)
    if odd is not None:
        raise DataError(
            f"the word {odd!r} cannot be written in the text format, whose words are separated by spaces",
            hint="write to a .safetensors file",
        )
    file.write(f"{len(vectors.words)} {vectors.dim}\n".encode())
    for word, row in zip(vectors.words, vectors.values, strict=True):
        file.write(f"{word} {' '.join(f'{value:.9g}' for value in row.tolist())}\n".encode())


def write_safetensors(file: BinaryIO, vectors: Vectors) -> None:
    words = json.dumps(list(vectors.words), ensure_ascii=False)
    file.write(as_safetensors({"vectors": vectors.values.contiguous()}, {"words": words}))


def load_vectors(path: Path) -> Vectors:
    return kind_of(path, READERS)(path)


def read_text(path: Path) -> Vectors:
    words, rows = [], []
    count, dim = None, 0
    for number, line in enumerate(read_lines(path), start=1):
        head = line.split()
        if number == 1 and len(head) == 2 and all(part.isdigit() for part in head):
            count, dim = map(int, head)
            continue
        word, row = parse_line(line, f"{path} line {number}")
        dim = dim or len(row)
        if len(row) != dim:
            raise DataError(f"{path} line {number} has {len(row)} numbers; expected {dim}, as in the first line")
        words.append(word)
        rows.append(row)
    if not rows or count not in (None, len(rows)):
        expected = "at least one" if not count else f"{count:,}, as stated in its first line"
        raise DataError(f"{path} has {len(rows):,} vectors; expected {expected}", hint="copy it again: it may be truncated")
    return Vectors(words, torch.from_numpy(np.stack(rows)))


def parse_line(line: bytes, place: str) -> tuple[str, NDArray[np.float32]]:
    word, _, numbers = line.rstrip(b" ").partition(b" ")
    try:
        row = np.array(numbers.split(b" "), np.float32)
        if not np.isfinite(row).all():
            raise ValueError("not finite")
        return word.decode(), row
    except ValueError as error:
        raise DataError(
            f"{place} is {line[:40]!r}; expected a word and its finite numbers, separated by single spaces"
        ) from error


def read_safetensors(path: Path) -> Vectors:
    try:
        with safe_open(path, "pt") as file:
            words: list[str] = parse_json(file.metadata()["words"], f"the list of words in {path}")
            values = file.get_tensor("vectors")
    except OSError as error:
        raise unreadable(path, error) from error
    except (SafetensorError, TypeError, KeyError, ValueError) as error:
        raise DataError(f"{path} is not a file of vectors ({error})", hint="write one with: heed vectors TEXT") from error
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise DataError(f"{path} is damaged: its words are not a list of strings", hint="copy it again, or train it again")
    if not bool(values.isfinite().all()):
        raise DataError(f"{path} has numbers that are not finite", hint="copy it again, or train it again: it is damaged")
    if len(words) != len(values):
        raise DataError(
            f"{path} is damaged: it has {len(words):,} words but {len(values):,} vectors",
            hint="copy it again, or train it again",
        )
    return Vectors(words, values)


WRITERS: dict[str, Callable[[BinaryIO, Vectors], None]] = {
    ".txt": write_text,
    ".vec": write_text,
    ".safetensors": write_safetensors,
}
READERS: dict[str, Callable[[Path], Vectors]] = {
    ".txt": read_text,
    ".vec": read_text,
    ".txt.gz": read_text,
    ".vec.gz": read_text,
    ".safetensors": read_safetensors,
}
