"""Encode a corpus into a token store, cached by its content.

    key = SHA-256(contents of the files, tokenizer fingerprints, options that change what is stored)

so that a changed file, tokenizer or option leads to a new store, and a moved or renamed file does not. A store is written
into a temporary folder and renamed when it is complete. Of two processes that need the same store, one builds it while the
other waits. A damaged store is detected and rebuilt.

Texts are read and checked in one thread while the tokenizer encodes the previous chunk, on all cores if it can. A corpus of
more than one shard is encoded by several processes, and an interrupted build continues (`encode_shards.py`).
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain, compress, islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from heedful.data.encode_shards import ShardEncoder, write_in_shards
from heedful.data.pairs import MAX_RATIO, Pair, pairs
from heedful.data.prefetch import prefetch
from heedful.data.sources import CorpusConfig, CorpusPart, files_of, title_of
from heedful.data.store import PairStore, load_store
from heedful.errors import DataError, WriteError
from heedful.storage import folders
from heedful.storage.manifest import FORMAT, Damaged, write_manifest
from heedful.storage.mapping import append_array, map_array
from heedful.storage.reading import read_package_files, sha256_of, unreadable
from heedful.storage.tables import is_pattern, table_files
from heedful.storage.writing import create

SHARD = 25_000  # pairs; small, so that at the end of a corpus all cores have work
CHUNK = 10_000  # pairs encoded at a time
CHARACTERS = 1 << 21  # of the sources encoded at a time; a tokenizer needs a few hundred bytes for each

log = logging.getLogger(__name__)

Found = TypeVar("Found")
Item = TypeVar("Item")


class Encoder(Protocol):
    """The part of a tokenizer that a store needs."""

    @property
    def fingerprint(self) -> str: ...
    def __len__(self) -> int: ...
    def encode_many(self, texts: Sequence[str], /) -> list[list[int]]: ...


@dataclass(frozen=True)
class StoreOptions:
    max_length: int | None = 256  # tokens per side, without the end token; None keeps every pair
    max_ratio: float = MAX_RATIO
    keep_text: bool = False


def open_store(
    corpus: CorpusConfig,
    encoders: tuple[Encoder, Encoder],
    options: StoreOptions | None = None,
    *,
    dropped: NDArray[np.int64] | None = None,
    cache: Path | None = None,
) -> PairStore:
    """Return the store of the corpus, from the cache if it is there.

    encoders: tokenizers of source and target, which may be the same
    dropped:  lines to leave out, as `CheckReport.dropped` returns them
    cache:    a folder; default: $HEED_CACHE, or ~/.cache/heedful
    """
    options = options or StoreOptions()
    dropped = np.zeros(0, np.int64) if dropped is None else dropped
    key = key_of(corpus, encoders, options, dropped)
    kept = without_dropped(dropped, pairs(corpus, max_ratio=options.max_ratio))
    return open_pairs(key, kept, encoders, options, title_of(corpus), cache)


def open_pairs(
    key: str,
    kept: Iterable[Pair],
    encoders: tuple[Encoder, Encoder],
    options: StoreOptions,
    title: str,
    cache: Path | None = None,
) -> PairStore:
    """Return the store with this key, written from the pairs if it is not in the cache; title: the files, for messages."""
    folder = (cache or cache_folder()) / "tokens" / key
    store = find_or_encode(folder, find_store, cut_shards(kept, SHARD), PairEncoder(encoders, options), SHARD)
    if len(store) == 0:
        raise no_usable_pair(title, len(store.overlong), options)
    return store


def no_usable_pair(title: str, overlong: int, options: StoreOptions) -> DataError:
    return DataError(
        f"no pair of {title} can be used: all {overlong:,} are longer than "
        f"data.max_length = {options.max_length} tokens on a side",
        hint="raise data.max_length, or choose a tokenizer with a larger vocabulary",
    )


def without_dropped(dropped: NDArray[np.int64], kept: Iterable[Pair]) -> Iterator[Pair]:
    """Return the pairs whose line is not dropped; one byte per line, where a set would take sixty per number."""
    marks = np.zeros(int(dropped.max(initial=-1)) + 1, bool)
    marks[dropped] = True
    is_dropped = marks.tobytes()
    return (pair for pair in kept if pair.line >= len(is_dropped) or not is_dropped[pair.line])


def cache_folder() -> Path:
    return Path(os.environ.get("HEED_CACHE") or "~/.cache/heedful").expanduser()


def key_of(corpus: CorpusConfig, encoders: tuple[Encoder, Encoder], options: StoreOptions, dropped: NDArray[np.int64]) -> str:
    about: dict[str, Any] = {
        "content": [content_hash(path) for path in files_of(corpus)]
        or builtin_fingerprint(is_toy=isinstance(corpus.builtin, str)),
        "reading": corpus.model_dump(include={"tsv", "jsonl", "columns", "fields", "tag", "header"})
        | {"tsv": corpus.tsv is not None, "jsonl": corpus.jsonl is not None},
        "builtin": corpus.model_dump(include={"builtin", "split", "count", "seed"}) if corpus.builtin else None,
        "dropped": sha256(np.ascontiguousarray(dropped).tobytes()).hexdigest(),
    }
    if isinstance(corpus, CorpusPart):
        about["part"] = [1, *corpus.part]  # the number is that of the rule by which parts are made
    return store_key(about, encoders, options)


def store_key(about: Mapping[str, Any], encoders: tuple[Encoder, Encoder], options: StoreOptions) -> str:
    """The name of a store; about: what determines the texts, as JSON values."""
    common = {
        "format": FORMAT,
        "encoders": [encoder.fingerprint for encoder in encoders],
        "options": [options.max_length, options.max_ratio, options.keep_text],
    }
    return sha256(json.dumps({**about, **common}, sort_keys=True).encode()).hexdigest()[:32]


def content_hash(path: Path) -> str:
    """Return the SHA-256 of a file; for a table of several files, of their hashes."""
    if path.is_dir() or is_pattern(path):
        return sha256("".join(map(content_hash, table_files(path))).encode()).hexdigest()
    try:
        return sha256_of(path)
    except OSError as error:
        raise unreadable(path, error) from error


def builtin_fingerprint(*, is_toy: bool) -> str:
    """Return a hash of the source files that a built-in corpus depends on: of the grammar, or of the toys."""
    files = read_package_files("heedful.data" if is_toy else "heedful.data.grammar")
    digest = sha256()
    for name in ["toys.py"] if is_toy else files:
        digest.update(name.encode() + b"\0" + sha256(files[name]).digest())
    return digest.hexdigest()


def find_store(folder: Path) -> PairStore | None:
    try:
        return load_store(folder)
    except OSError:  # missing or unreadable
        return None
    except Damaged as damage:
        log.warning("the token store %s is damaged and will be rebuilt: %s", folder, damage)
        return None


def find_or_build(folder: Path, find: Callable[[Path], Found | None], write: Callable[[Path], None]) -> Found:
    """Return what a folder of the cache stores; write it if it is missing."""
    with cache_errors(folder.parent):
        return folders.find_or_build(folder, find, write)


@contextmanager
def cache_errors(folder: Path) -> Iterator[None]:
    """Explain that a folder of the cache cannot be written."""
    try:
        yield
    except (OSError, WriteError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        raise WriteError(
            f"the token store cannot be written to {folder}: {getattr(cause, 'strerror', None) or cause}",
            hint="set HEED_CACHE to a writable folder with enough free space",
        ) from error


def find_or_encode(
    folder: Path,
    find: Callable[[Path], Found | None],
    shards: Iterable[Sequence[Item]],
    encoder: ShardEncoder[Item],
    size: int,
) -> Found:
    """Return what a folder of the cache stores; encode it if it is missing. size: of a shard; shards of another size are not
    continued."""
    work = folder.with_name(f"{folder.name}.{size}.shards")
    store = find_or_build(folder, find, lambda partial: write_in_shards(partial, work, shards, encoder))
    for left in folder.parent.glob(f"{folder.name}.*shards"):  # also of another size, from an earlier release
        with suppress(OSError, WriteError):  # another process may remove it too
            folders.remove(left)
    return store


def cut_shards(kept: Iterable[Pair], size: int) -> Iterator[list[Pair]]:
    """Cut the pairs into shards of `size` pairs; the last one may have fewer."""
    remaining = iter(kept)
    return iter(lambda: list(islice(remaining, size)), [])


class PairEncoder(NamedTuple):
    """Encodes sentence pairs into a `PairStore`."""

    encoders: tuple[Encoder, Encoder]  # tokenizers of source and target
    options: StoreOptions

    def describe(self, pairs: Sequence[Pair]) -> str:
        return f"{len(pairs):,} pairs, the first in line {pairs[0].line:,}"

    @property
    def about(self) -> dict[str, Any]:
        """What the manifest of a store says about its arrays."""
        types = ["uint16" if len(encoder) <= 1 << 16 else "uint32" for encoder in self.encoders]
        return {"types": types, "keeps_text": self.options.keep_text}

    def write(self, folder: Path, pairs: Sequence[Pair]) -> None:
        options = self.options
        with ExitStack() as stack:
            lines, overlong = (stack.enter_context(create(folder / name)) for name in ("lines", "overlong"))
            sides = [stack.enter_context(Ragged(folder, side)) for side in ("source", "target")]
            texts = stack.enter_context(Ragged(folder, "text")) if options.keep_text else None
            ready = stack.enter_context(closing(prefetch(chunks(pairs), depth=2)))
            for chunk in ready:
                encoded = (
                    self.encoders[0].encode_many([pair.source for pair in chunk]),
                    self.encoders[1].encode_many([pair.target for pair in chunk]),
                )
                lengths = np.array([list(map(len, side)) for side in encoded])  # (2, pairs)
                fits = np.full(len(chunk), True) if options.max_length is None else lengths.max(0) <= options.max_length
                for side, rows, count, kind in zip(sides, encoded, lengths, self.about["types"], strict=True):
                    side.append(np.fromiter(chain.from_iterable(compress(rows, fits)), kind), count[fits])
                numbers = np.array([pair.line for pair in chunk])  # (pairs,)
                append_array(lines, numbers[fits])
                append_array(overlong, numbers[~fits])
                if texts is not None:
                    raw = [text.encode() for pair in compress(chunk, fits) for text in (pair.source, pair.target)]
                    texts.append(np.frombuffer(b"".join(raw), np.uint8), np.array(list(map(len, raw))))
        write_manifest(folder, self.about)

    def concatenate(self, shards: Sequence[Path], folder: Path) -> None:
        kinds = dict(zip(("source.values", "target.values"), self.about["types"], strict=True))
        kinds |= {"lines": "int64", "overlong": "int64"}
        ragged = ["source", "target"]
        if self.options.keep_text:
            kinds["text.values"] = "uint8"
            ragged.append("text")
        for name, kind in kinds.items():
            concatenate_arrays(shards, folder, name, kind)
        for side in ragged:
            total = np.zeros(1, np.int64)
            with create(folder / f"{side}.offsets") as file:
                append_array(file, total)
                for shard in shards:
                    offsets = map_array(shard / f"{side}.offsets", "int64")
                    append_array(file, offsets[1:] + total)
                    total = total + offsets[-1]
        write_manifest(folder, self.about)


def concatenate_arrays(shards: Sequence[Path], folder: Path, name: str, kind: str) -> None:
    """Write the arrays of this name as one."""
    with create(folder / name) as file:
        for shard in shards:
            append_array(file, map_array(shard / name, kind))


class Ragged:
    """Rows of different lengths: <name>.values is their concatenation, <name>.offsets where each starts."""

    def __init__(self, folder: Path, name: str) -> None:
        self.values = create(folder / f"{name}.values")
        self.offsets = create(folder / f"{name}.offsets")
        self.total = 0
        append_array(self.offsets, np.zeros(1, np.int64))

    def append(self, values: NDArray[Any], lengths: NDArray[np.int64]) -> None:
        append_array(self.values, values)
        append_array(self.offsets, self.total + np.cumsum(lengths, dtype=np.int64))
        self.total += len(values)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.values.close()
        self.offsets.close()


def chunks(items: Iterable[Pair]) -> Iterator[list[Pair]]:
    chunk: list[Pair] = []
    characters = 0
    for pair in items:
        chunk.append(pair)
        characters += len(pair.source)
        if len(chunk) == CHUNK or characters >= CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk
