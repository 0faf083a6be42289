"""A corpus whose tokens need not fit on the disk: it is encoded ahead of use, in windows, and removed after use.

    once        text -> shards of SHARD pairs -> index.json: pairs, bytes and lengths of each shard; the shard itself is removed
    an epoch    windows of consecutive shards in the order of the text; within a window the batches of `batching.py`
    on disk     the window in use, the one before it, which another process may still use, and the one after it

The batches of an epoch are a function of (text, tokenizers, options, seed, epoch). How many batches a window has depends on the
lengths of its pairs alone, so the index shows which window has a given batch: a resumed run goes there and encodes nothing
before it. The text before it is read again, but not encoded.

Pairs are shuffled within a window only: a text that is sorted by its origin should be shuffled once before. Windows are as
large as max_bytes allows, three at a time, and one of them is in memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import islice
from pathlib import Path
from threading import Thread
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from heedful.data.batching import END, Index, batch_starts, mix_corpora, plan_epoch
from heedful.data.encode import Encoder, StoreOptions, cache_errors, cache_folder, key_of, without_dropped
from heedful.data.encode_shards import encode_items, is_complete
from heedful.data.pairs import Pair, pairs
from heedful.data.sources import CorpusConfig
from heedful.data.store import JoinedStore, StoresOfPairs, load_store
from heedful.errors import ConfigError, DataError
from heedful.storage import folders
from heedful.storage.locks import locked
from heedful.storage.reading import read_bytes
from heedful.storage.writing import replace_text

SHARD = 25_000  # pairs; the order of the data depends on it
WINDOWS = 3  # on the disk at a time

Setup = tuple[tuple[Encoder, Encoder], StoreOptions]


class ShardFacts(NamedTuple):
    """What the index keeps of a shard."""

    pairs: int
    overlong: int
    size: int  # bytes
    target_tokens: int
    lengths: list[int]  # number of pairs whose longer side, with its end token, has 0, 1, 2, … tokens


class StreamedStore(StoresOfPairs):
    """The pairs of one corpus, as those of a `JoinedStore`; only pairs of one window are in memory."""

    def __init__(
        self, folder: Path, read: Callable[[], Iterator[Pair]], setup: Setup, facts: Sequence[ShardFacts], max_bytes: int
    ) -> None:
        self.folder, self.read, self.setup, self.facts = folder, read, setup, facts
        self.windows = make_windows([shard.size for shard in facts], max_bytes)
        sizes = [sum(facts[number].pairs for number in window) for window in self.windows]
        self.begins = np.cumsum([0, *sizes])  # of each window, in pairs
        self.sizes = (sum(sizes),)
        self.overlong = sum(shard.overlong for shard in facts)
        self.current: tuple[int, JoinedStore] | None = None
        self.ahead: tuple[int, Future[None]] | None = None
        self.shards: Iterator[tuple[int, list[Pair]]] = iter(())
        self.next_shard = 0

    def __len__(self) -> int:
        return self.sizes[0]

    def find(self, index: int) -> tuple[JoinedStore, int]:
        window = int(np.searchsorted(self.begins, index, side="right")) - 1
        return self.open_window(window), int(index - self.begins[window])

    def open_window(self, window: int) -> JoinedStore:
        """The pairs of a window; the next one is encoded in the background, others are removed."""
        if self.current is not None and self.current[0] == window:
            return self.current[1]
        if self.ahead is not None:
            self.ahead[1].result()  # an error of it is raised here
        self.current = None
        store = self.load(window)
        self.current = window, store
        if len(self.windows) > 1:
            following = (window + 1) % len(self.windows)
            self.ahead = following, in_background(lambda: self.build(following))
        return store

    def load(self, window: int) -> JoinedStore:
        near = {number for at in (window - 1, window, window + 1) for number in self.windows[at % len(self.windows)]}
        with locked(self.folder / ".lock", wait=True):
            folders.clear_temporary(self.folder)
            for path in self.folder.glob("shard-*"):
                if int(path.name.removeprefix("shard-")) not in near:
                    folders.remove(path)
            self.encode_missing(window)
            return JoinedStore([load_store(self.path(number)) for number in self.windows[window]])

    def build(self, window: int) -> None:
        with locked(self.folder / ".lock", wait=True):
            self.encode_missing(window)

    def encode_missing(self, window: int) -> None:
        """Encode the shards of a window that are not there; the caller holds the lock of the folder."""
        missing = [number for number in self.windows[window] if not is_complete(self.path(number))]
        if missing:
            encode_items(((self.path(number), self.read_shard(number)) for number in missing), self.setup)

    def read_shard(self, number: int) -> list[Pair]:
        """The pairs of a shard; the text is read on from the shard before it, if that was the last one read."""
        if number < self.next_shard or self.next_shard == 0:
            self.shards, self.next_shard = shards_of(self.read()), 0
        for found, shard in self.shards:
            self.next_shard = found + 1
            if found == number:
                return shard
        raise DataError(
            f"the training text ends before pair {number * SHARD + 1:,}, which it had when it was indexed",
            hint="restore the file: it must not change while it is used",
        )

    def path(self, number: int) -> Path:
        return self.folder / f"shard-{number:08d}"

    def plan(self, epoch: int, *, budget: int, seed: int, pad_to_multiple_of: int) -> StreamedPlan:
        """The batches of an epoch."""
        return StreamedPlan(self, budget, seed, epoch, pad_to_multiple_of)

    def batch_counts(self, budget: int, pad_to_multiple_of: int) -> NDArray[np.int64]:
        """The number of batches of each window."""
        counts = []
        for window in self.windows:
            lengths = np.zeros(max(len(self.facts[number].lengths) for number in window), np.int64)
            for number in window:
                lengths[: len(self.facts[number].lengths)] += self.facts[number].lengths
            counts.append(len(batch_starts(lengths, budget, pad_to_multiple_of)))
        return np.array(counts)


class StreamedPlan(Sequence[Index]):
    """The batches of an epoch, one window after the other; only the plan of one window is in memory."""

    def __init__(self, store: StreamedStore, budget: int, seed: int, epoch: int, pad_to_multiple_of: int) -> None:
        self.store, self.epoch = store, epoch
        self.options: dict[str, int] = {"budget": budget, "seed": seed, "pad_to_multiple_of": pad_to_multiple_of}
        self.ends = np.cumsum(store.batch_counts(budget, pad_to_multiple_of))
        self.current: tuple[int, Sequence[Index]] | None = None

    def __len__(self) -> int:
        return int(self.ends[-1])

    @overload
    def __getitem__(self, at: int) -> Index: ...
    @overload
    def __getitem__(self, at: slice) -> list[Index]: ...
    def __getitem__(self, at: int | slice) -> Index | list[Index]:
        if isinstance(at, slice):
            return [self[number] for number in range(*at.indices(len(self)))]
        if not 0 <= at < len(self):
            raise IndexError(at)
        window = int(np.searchsorted(self.ends, at, side="right"))
        batches = self.plan_window(window)
        indices: Index = batches[at - int(self.ends[window]) + len(batches)] + self.store.begins[window]
        return indices

    def plan_window(self, window: int) -> Sequence[Index]:
        """The batches of a window, as indices of its own pairs."""
        if self.current is None or self.current[0] != window:
            store = self.store.open_window(window)
            number = self.epoch * len(self.store.windows) + window
            order = mix_corpora([len(store)], [1.0], seed=self.options["seed"], epoch=number)
            self.current = (
                window,
                plan_epoch(store.source_lengths, store.target_lengths, indices=order, epoch=number, **self.options),
            )
        return self.current[1]


def open_streamed(
    corpus: CorpusConfig,
    encoders: tuple[Encoder, Encoder],
    options: StoreOptions,
    *,
    dropped: NDArray[np.int64],
    max_bytes: int,
    cache: Path | None = None,
) -> StreamedStore:
    """Return the streamed store of the corpus; its index is in the cache, or made by encoding the corpus once."""
    folder = (cache or cache_folder()) / "streams" / f"{key_of(corpus, encoders, options, dropped)}.{SHARD}"

    def read() -> Iterator[Pair]:
        return iter(without_dropped(dropped, pairs(corpus, max_ratio=options.max_ratio)))

    with cache_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / ".lock", wait=True):
            facts = read_index(folder) or write_index(folder, read, (encoders, options))
    return StreamedStore(folder, read, (encoders, options), facts, max_bytes)


def read_index(folder: Path) -> list[ShardFacts] | None:
    with suppress(OSError, ValueError, TypeError):
        return [ShardFacts(*shard) for shard in json.loads(read_bytes(folder / "index.json"))]
    return None


def write_index(folder: Path, read: Callable[[], Iterator[Pair]], setup: Setup) -> list[ShardFacts]:
    """Encode the corpus once, a shard for each core at a time. What was indexed before an interruption is not encoded again."""
    found: list[Path] = []

    def missing() -> Iterator[tuple[Path, list[Pair]]]:
        for number, shard in shards_of(read()):
            found.append(folder / f"facts-{number:08d}.json")
            if read_facts(found[-1]) is None:
                yield folder / f"shard-{number:08d}", shard

    def measure(shard: Path) -> None:
        store = load_store(shard)
        longer = np.maximum(store.source_lengths, store.target_lengths) + END
        size = sum(path.stat().st_size for path in shard.iterdir())
        tokens = int(store.target_lengths.sum()) + END * len(store)
        facts = ShardFacts(len(store), len(store.overlong), size, tokens, np.bincount(longer).tolist())
        replace_text(shard.with_name(f"facts-{shard.name.removeprefix('shard-')}.json"), json.dumps(facts))
        folders.remove(shard)

    encode_items(missing(), setup, finish=measure)
    every = [facts for facts in map(read_facts, found) if facts is not None]
    replace_text(folder / "index.json", json.dumps(every))
    for path in found:
        path.unlink()
    return every


def read_facts(path: Path) -> ShardFacts | None:
    with suppress(OSError, ValueError, TypeError):
        return ShardFacts(*json.loads(read_bytes(path)))
    return None


def shards_of(kept: Iterator[Pair]) -> Iterator[tuple[int, list[Pair]]]:
    return enumerate(iter(lambda: list(islice(kept, SHARD)), []))


def make_windows(sizes: Sequence[int], max_bytes: int) -> list[range]:
    """Consecutive shards, as many as fit into a third of max_bytes."""
    room = max_bytes // WINDOWS
    if max(sizes) > room:
        raise ConfigError(
            f"data.max_store_megabytes: given {max_bytes / 1e6:g}, expected at least {WINDOWS * max(sizes) / 1e6:,.1f}: "
            f"{WINDOWS} windows of {SHARD:,} pairs"
        )
    windows, begin, used = [], 0, 0
    for number, size in enumerate(sizes):
        if used + size > room:
            windows.append(range(begin, number))
            begin, used = number, 0
        used += size
    return [*windows, range(begin, len(sizes))]


def in_background(function: Callable[[], None]) -> Future[None]:
    """Run a function in a thread that does not keep the process from ending."""
    future: Future[None] = Future()

    def run() -> None:
        try:
            function()
            future.set_result(None)
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, name="stream", daemon=True).start()
    return future
