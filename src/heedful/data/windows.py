"""Corpora whose tokens need not fit on the disk: they are encoded ahead of use, in windows, and removed after use.

    once        text -> shards -> index.json: the size of each shard and counts; the shard itself is removed
    an epoch    windows, each with consecutive shards of every corpus
    on disk     the window in use, the one before it, which another process may still use, and the one after it

Small corpora, which together fit into half of a window, are in every window, and an epoch takes an equal share of them from
each. The others are cut into as many parts as there are windows.

A window is encoded when it is needed, so that a resumed run encodes nothing before the window of its batch. The text before it
is read again. Windows are as large as max_bytes allows, three at a time, and one of them is in memory.

`streamed.py` makes batches of pairs from windows, and `streamed_text.py` blocks of text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from heedful.data.encode import cache_errors
from heedful.data.encode_shards import ShardEncoder, encode_items, in_background, is_complete, shard_path
from heedful.errors import ConfigError, DataError
from heedful.storage import folders
from heedful.storage.locks import locked
from heedful.storage.manifest import Damaged
from heedful.storage.reading import read_bytes
from heedful.storage.writing import output_bytes, replace_bytes, replace_text

WINDOWS = 3  # on the disk at a time

Window = tuple[range, ...]  # the shards of each corpus


class ShardFacts(Protocol):
    """What the index keeps of a shard: a tuple of integers."""

    @property
    def size(self) -> int:
        """Bytes on the disk."""


Item = TypeVar("Item")
Store = TypeVar("Store")
Facts = TypeVar("Facts", bound=ShardFacts)


class ShardFiles(Generic[Item]):
    """The shards of one corpus, of which few are on the disk at a time."""

    def __init__(self, folder: Path, cut: Callable[[], Iterator[Sequence[Item]]], encoder: ShardEncoder[Item]) -> None:
        """cut: reads the text from its beginning and yields the items of each shard."""
        self.folder, self.cut, self.encoder = folder, cut, encoder
        self.shards: Iterator[tuple[int, Sequence[Item]]] = iter(())
        self.next_shard = 0

    def load(self, shards: range, keep: set[int], open_shard: Callable[[Path], Store]) -> list[Store]:
        """Open these shards; if one is missing, encode it first. The lock is not needed while all are there: another process,
        which is ahead of this one, may hold it to encode others."""
        with suppress(OSError, Damaged):
            return [open_shard(self.path(number)) for number in shards]
        self.encode(shards, keep)
        return [open_shard(self.path(number)) for number in shards]

    def encode(self, shards: range, keep: set[int]) -> None:
        """Encode the shards that are missing, after removing all but those to keep."""
        with locked(self.folder / ".lock", wait=True):
            folders.clear_temporary(self.folder)
            for path in self.folder.glob("shard-*"):
                if int(path.name.removeprefix("shard-")) not in keep:
                    folders.remove(path)
            missing = [number for number in shards if not is_complete(self.path(number))]
            if missing:
                encode_items(((self.path(number), self.read_shard(number)) for number in missing), self.encoder)

    def read_shard(self, number: int) -> Sequence[Item]:
        """The items of a shard; the text is read on from the shard before it, if that was the last one read."""
        if number < self.next_shard or self.next_shard == 0:
            self.shards, self.next_shard = enumerate(self.cut()), 0
        for found, shard in self.shards:
            self.next_shard = found + 1
            if found == number:
                return shard
        raise DataError(
            f"the training text has {self.next_shard:,} parts; it had more than {number:,} when it was indexed",
            hint="restore the file: it must not change while it is used",
        )

    def path(self, number: int) -> Path:
        return shard_path(self.folder, number)


class Windows:
    """The windows of several corpora. The next one is encoded while one is in use."""

    def __init__(self, corpora: Sequence[ShardFiles[Any]], windows: Sequence[Window]) -> None:
        self.corpora, self.windows = corpora, windows
        self.is_in_all = [all(window[at] == windows[0][at] for window in windows) for at in range(len(corpora))]
        self.ahead: tuple[int, Future[None]] | None = None

    def __len__(self) -> int:
        return len(self.windows)

    def share_weights(self, weights: Sequence[float]) -> list[float]:
        """How often an epoch takes the examples of each corpus from a window; weights: of the corpora."""
        return [weight / len(self) if is_in_all else weight for weight, is_in_all in zip(weights, self.is_in_all, strict=True)]

    def key(self, corpus: int, window: int, *, seed: int, epoch: int) -> tuple[int, int]:
        """Seed and epoch of what is drawn from a corpus in a window; a corpus that is in all continues in the next one."""
        place, turn = (0, epoch * len(self) + window) if self.is_in_all[corpus] else (window, epoch)
        return int(np.random.SeedSequence((seed, corpus, place)).generate_state(1)[0]), turn

    def load(self, window: int, open_shard: Callable[[Path], Store]) -> list[list[Store]]:
        """The shards that a window has of each corpus; the next window is encoded in the background."""
        if self.ahead is not None:
            self.ahead[1].result()  # an error of it is raised here
        near = [self.windows[at % len(self)] for at in (window - 1, window, window + 1)]
        keep = [{number for one in near for number in one[at]} for at in range(len(self.corpora))]
        parts = zip(self.corpora, self.windows[window], keep, strict=True)
        found = [corpus.load(shards, kept, open_shard) for corpus, shards, kept in parts]
        if len(self) > 1:
            following = (window + 1) % len(self)
            self.ahead = following, in_background(lambda: self.encode(following, keep))
        return found

    def encode(self, window: int, keep: Sequence[set[int]]) -> None:
        for corpus, shards, kept in zip(self.corpora, self.windows[window], keep, strict=True):
            corpus.encode(shards, kept)


class Measured(NamedTuple, Generic[Facts]):
    """A shard in the index."""

    facts: Facts
    lengths: NDArray[np.uint32]  # of its items; may be empty


def open_index(files: ShardFiles[Any], kind: Callable[..., Facts], measure: Callable[[Path], Measured[Facts]]) -> list[Facts]:
    """Return the index of a corpus, from the cache or made by encoding the corpus once.

    kind: the type of its facts; measure: reads a shard"""
    folder = files.folder
    with cache_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        index = read_index(folder, kind)
        if index is None:
            with locked(folder / ".lock", wait=True):
                index = read_index(folder, kind) or write_index(files, kind, measure)
    return index


def read_index(folder: Path, kind: Callable[..., Facts]) -> list[Facts] | None:
    with suppress(OSError, ValueError, TypeError):
        return [kind(*shard) for shard in json.loads(read_bytes(folder / "index.json"))]
    return None


def write_index(files: ShardFiles[Any], kind: Callable[..., Facts], measure: Callable[[Path], Measured[Facts]]) -> list[Facts]:
    """Encode the corpus once, a shard for each core at a time. What was indexed before an interruption is not encoded again."""
    folder = files.folder
    numbers: list[int] = []

    def lengths_of(number: int) -> Path:
        return folder / f"lengths-{number:08d}"

    def facts_of(number: int) -> Path:
        return folder / f"facts-{number:08d}.json"

    def read_facts(number: int) -> Facts | None:
        with suppress(OSError, ValueError, TypeError):
            return kind(*json.loads(read_bytes(facts_of(number))))
        return None

    def missing() -> Iterator[tuple[Path, Sequence[Any]]]:
        for number, shard in enumerate(files.cut()):
            numbers.append(number)
            if read_facts(number) is None:
                yield files.path(number), shard

    def finish(shard: Path) -> None:
        measured, number = measure(shard), int(shard.name.removeprefix("shard-"))
        replace_bytes(lengths_of(number), measured.lengths.tobytes())
        replace_text(facts_of(number), json.dumps(measured.facts))  # last: a shard with facts is not encoded again
        folders.remove(shard)

    encode_items(missing(), files.encoder, finish=finish)
    facts = [one for one in map(read_facts, numbers) if one is not None]
    with output_bytes(folder / "lengths") as file:
        for number in numbers:
            file.write(read_bytes(lengths_of(number)))
    replace_text(folder / "index.json", json.dumps(facts))
    for number in numbers:
        facts_of(number).unlink()
        lengths_of(number).unlink()
    return facts


def bytes_of(shard: Path) -> int:
    """The size of the files of a shard."""
    return sum(path.stat().st_size for path in shard.iterdir())


def make_windows(sizes: Sequence[Sequence[int]], max_bytes: int, shard: str) -> list[Window]:
    """The shards of each corpus in each window: as few windows as possible, each of at most a third of max_bytes.

    sizes: bytes of each shard of each corpus
    shard: what a shard has, for messages"""
    found = cut_windows(sizes, max_bytes // WINDOWS)
    if not isinstance(found, int):
        return found
    while isinstance(found, int):  # with more room, more corpora are in every window, which may need still more
        megabytes = -(-WINDOWS * found // 10**6)
        found = cut_windows(sizes, megabytes * 10**6 // WINDOWS)
    raise ConfigError(
        f"data.max_store_megabytes: given {max_bytes / 1e6:g}, expected at least {megabytes:,}, because {WINDOWS} windows are "
        f"on the disk at a time, each with at least {shard} of every corpus, or all of a smaller one"
    )


def cut_windows(sizes: Sequence[Sequence[int]], room: int) -> list[Window] | int:
    """The windows of at most `room` bytes; if there are none, the bytes of the largest window, with a shard of each corpus."""
    in_all: set[int] = set()
    for number in sorted(range(len(sizes)), key=lambda at: sum(sizes[at])):
        if 2 * sum(sum(sizes[one]) for one in (*in_all, number)) <= room:
            in_all.add(number)

    def cut(count: int) -> list[Window]:
        return [
            tuple(
                range(len(shards))
                if at in in_all
                else range(window * len(shards) // count, (window + 1) * len(shards) // count)
                for at, shards in enumerate(sizes)
            )
            for window in range(count)
        ]

    def largest(windows: Sequence[Window]) -> int:
        return max(
            sum(sum(shards[part.start : part.stop]) for shards, part in zip(sizes, window, strict=True)) for window in windows
        )

    most = max((len(shards) for at, shards in enumerate(sizes) if at not in in_all), default=1)
    kept = sum(sum(sizes[at]) for at in in_all)
    fewest = -(-(sum(map(sum, sizes)) - kept) // max(room - kept, 1))  # if shards could be cut
    for count in range(min(max(fewest, 1), most), most + 1):
        windows = cut(count)
        if largest(windows) <= room:
            return windows
    return largest(cut(most))
