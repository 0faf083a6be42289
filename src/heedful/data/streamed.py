"""Corpora whose tokens need not fit on the disk: they are encoded ahead of use, in windows, and removed after use.

    once        text -> shards of SHARD pairs -> index.json: pairs and bytes of each shard, lengths; the shard itself is removed
    an epoch    windows, each with consecutive shards of every corpus; within a window the batches of `batching.py`
    on disk     the window in use, the one before it, which another process may still use, and the one after it

Small corpora, which together fit into half of a window, are in every window, and an epoch takes an equal share of them from
each. The others are cut into as many parts as there are windows.

The batches of an epoch are a function of (text, tokenizers, options, seed, epoch). How many batches a window has depends on the
lengths of its pairs alone, which are kept, so that a resumed run goes to the window of its batch and encodes nothing before it.
The text before it is read again, but not encoded.

Pairs are shuffled within a window only: a text that is sorted by its origin should be shuffled once before. Windows are as
large as max_bytes allows, three at a time, and one of them is in memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from heedful.data.batching import END, Index, batch_starts, plan_epoch
from heedful.data.encode import (
    Encoder,
    PairEncoder,
    StoreOptions,
    cache_errors,
    cache_folder,
    cut_shards,
    key_of,
    without_dropped,
)
from heedful.data.encode_shards import encode_items, in_background, is_complete, shard_path
from heedful.data.mixing import corpus_counts, mix_corpora
from heedful.data.pairs import Pair, pairs
from heedful.data.sources import CorpusConfig
from heedful.data.store import JoinedStore, PairStore, StoresOfPairs, load_store
from heedful.errors import ConfigError, DataError
from heedful.storage import folders
from heedful.storage.locks import locked
from heedful.storage.manifest import Damaged
from heedful.storage.mapping import map_array
from heedful.storage.reading import read_bytes
from heedful.storage.writing import output_bytes, replace_bytes, replace_text

SHARD = 25_000  # pairs; the order of the data depends on it
WINDOWS = 3  # on the disk at a time

Window = tuple[range, ...]  # the shards of each corpus


class ShardFacts(NamedTuple):
    """What the index keeps of a shard, besides the lengths of its pairs."""

    pairs: int
    overlong: int
    size: int  # bytes
    target_tokens: int


class StreamedCorpus:
    """The shards of one corpus, of which few are on the disk at a time."""

    def __init__(
        self, folder: Path, read: Callable[[], Iterator[Pair]], encoder: PairEncoder, facts: Sequence[ShardFacts]
    ) -> None:
        self.folder, self.read, self.encoder, self.facts = folder, read, encoder, facts
        self.begins = np.cumsum([0, *(shard.pairs for shard in facts)])  # of each shard, in pairs
        self.longer = map_array(folder / "lengths", "uint32")  # (pairs,): the longer side of each, with its end token
        self.shards: Iterator[tuple[int, list[Pair]]] = iter(())
        self.next_shard = 0

    def __len__(self) -> int:
        return int(self.begins[-1])

    def pairs_of(self, shards: range) -> slice:
        """The pairs of consecutive shards."""
        return slice(int(self.begins[shards.start]), int(self.begins[shards.stop]))

    def load(self, shards: range, keep: set[int]) -> list[PairStore]:
        """Open these shards; if one is missing, encode it first. The lock is not needed while all are there: another process,
        which is ahead of this one, may hold it to encode others."""
        with suppress(OSError, Damaged):
            return [load_store(self.path(number)) for number in shards]
        self.encode(shards, keep)
        return [load_store(self.path(number)) for number in shards]

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

    def read_shard(self, number: int) -> list[Pair]:
        """The pairs of a shard; the text is read on from the shard before it, if that was the last one read."""
        if number < self.next_shard or self.next_shard == 0:
            self.shards, self.next_shard = enumerate(cut_shards(self.read(), SHARD)), 0
        for found, shard in self.shards:
            self.next_shard = found + 1
            if found == number:
                return shard
        raise DataError(
            f"the training text ends before pair {number * SHARD + 1:,}, which it had when it was indexed",
            hint="restore the file: it must not change while it is used",
        )

    def path(self, number: int) -> Path:
        return shard_path(self.folder, number)


class StreamedStore(StoresOfPairs):
    """The pairs of several corpora, as those of a `JoinedStore`; only pairs of one window are in memory. The index of a pair
    counts those of the windows before its own; a pair that is in every window has several."""

    def __init__(self, corpora: Sequence[StreamedCorpus], weights: Sequence[float], max_bytes: int) -> None:
        self.corpora, self.weights = corpora, weights
        self.windows = make_windows([[shard.size for shard in corpus.facts] for corpus in corpora], max_bytes)
        self.is_in_all = [all(window[at] == self.windows[0][at] for window in self.windows) for at in range(len(corpora))]
        self.begins = np.cumsum([0, *(sum(self.sizes_in(window)) for window in range(len(self.windows)))])  # in pairs
        self.overlong = sum(shard.overlong for corpus in corpora for shard in corpus.facts)
        self.current: tuple[int, JoinedStore] | None = None
        self.ahead: tuple[int, Future[None]] | None = None

    def __len__(self) -> int:
        return sum(map(len, self.corpora))

    def sizes_in(self, window: int) -> list[int]:
        """The number of pairs that a window has of each corpus."""
        parts = [corpus.pairs_of(shards) for corpus, shards in zip(self.corpora, self.windows[window], strict=True)]
        return [part.stop - part.start for part in parts]

    def weights_in(self, window: int) -> list[float]:
        """How often an epoch takes each of these pairs from the window."""
        return [
            weight / len(self.windows) if is_in_all else weight
            for weight, is_in_all in zip(self.weights, self.is_in_all, strict=True)
        ]

    def epoch_counts(self) -> list[int]:
        """The number of pairs of each corpus in an epoch."""
        counts = [corpus_counts(self.sizes_in(window), self.weights_in(window)) for window in range(len(self.windows))]
        return [sum(column) for column in zip(*counts, strict=True)]

    def epoch_tokens(self) -> int:
        """The number of target tokens of an epoch, if its pairs have the mean length of their corpus."""
        tokens = [sum(shard.target_tokens for shard in corpus.facts) for corpus in self.corpora]
        rows = zip(tokens, self.epoch_counts(), self.corpora, strict=True)
        return round(sum(total * count / len(corpus) for total, count, corpus in rows if len(corpus)))

    def find(self, index: int) -> tuple[JoinedStore, int]:
        window = int(np.searchsorted(self.begins, index, side="right")) - 1
        return self.open_window(window), int(index - self.begins[window])

    def open_window(self, window: int) -> JoinedStore:
        """The pairs of a window; the next one is encoded in the background."""
        if self.current is not None and self.current[0] == window:
            return self.current[1]
        if self.ahead is not None:
            self.ahead[1].result()  # an error of it is raised here
        self.current = None
        near = [self.windows[at % len(self.windows)] for at in (window - 1, window, window + 1)]
        keep = [{number for one in near for number in one[at]} for at in range(len(self.corpora))]
        parts = zip(self.corpora, self.windows[window], keep, strict=True)
        store = JoinedStore([one for corpus, shards, kept in parts for one in corpus.load(shards, kept)])
        self.current = window, store
        if len(self.windows) > 1:
            following = (window + 1) % len(self.windows)
            self.ahead = following, in_background(lambda: self.encode(following, keep))
        return store

    def encode(self, window: int, keep: Sequence[set[int]]) -> None:
        for corpus, shards, kept in zip(self.corpora, self.windows[window], keep, strict=True):
            corpus.encode(shards, kept)

    def draw(self, window: int, *, seed: int, epoch: int) -> Index:
        """The pairs of a window that an epoch trains on, as indices of the window."""
        drawn, begin = [], 0
        for number, (size, weight) in enumerate(zip(self.sizes_in(window), self.weights_in(window), strict=True)):
            place, turn = (0, epoch * len(self.windows) + window) if self.is_in_all[number] else (window, epoch)
            key = int(np.random.SeedSequence((seed, number, place)).generate_state(1)[0])
            drawn.append(begin + mix_corpora([size], [weight], seed=key, epoch=turn))
            begin += size
        return np.concatenate(drawn)

    def plan(self, epoch: int, *, budget: int, seed: int, pad_to_multiple_of: int) -> StreamedPlan:
        """The batches of an epoch."""
        return StreamedPlan(self, budget, seed, epoch, pad_to_multiple_of)

    def batch_counts(self, epoch: int, *, budget: int, seed: int, pad_to_multiple_of: int) -> NDArray[np.int64]:
        """The number of batches of each window."""
        counts = []
        for number, window in enumerate(self.windows):
            parts = [corpus.longer[corpus.pairs_of(shards)] for corpus, shards in zip(self.corpora, window, strict=True)]
            longer = np.concatenate(parts)[self.draw(number, seed=seed, epoch=epoch)]
            counts.append(len(batch_starts(np.bincount(longer), budget, pad_to_multiple_of)))
        return np.array(counts)


class StreamedPlan(Sequence[Index]):
    """The batches of an epoch, one window after the other; only the plan of one window is in memory."""

    def __init__(self, store: StreamedStore, budget: int, seed: int, epoch: int, pad_to_multiple_of: int) -> None:
        self.store, self.epoch = store, epoch
        self.options: dict[str, int] = {"budget": budget, "seed": seed, "pad_to_multiple_of": pad_to_multiple_of}
        self.ends = np.cumsum(store.batch_counts(epoch, **self.options))
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
            drawn = self.store.draw(window, seed=self.options["seed"], epoch=self.epoch)
            number = self.epoch * len(self.store.windows) + window
            plan = plan_epoch(store.source_lengths, store.target_lengths, indices=drawn, epoch=number, **self.options)
            self.current = window, plan
        return self.current[1]


def open_streamed(
    corpus: CorpusConfig,
    encoders: tuple[Encoder, Encoder],
    options: StoreOptions,
    *,
    dropped: NDArray[np.int64],
    cache: Path | None = None,
) -> StreamedCorpus:
    """Return the shards of a corpus; their index is in the cache, or made by encoding the corpus once."""
    folder = (cache or cache_folder()) / "streams" / f"{key_of(corpus, encoders, options, dropped)}.{SHARD}"
    encoder = PairEncoder(encoders, options)

    def read() -> Iterator[Pair]:
        return iter(without_dropped(dropped, pairs(corpus, max_ratio=options.max_ratio)))

    with cache_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        facts = read_index(folder)
        if facts is None:
            with locked(folder / ".lock", wait=True):
                facts = read_index(folder) or write_index(folder, read, encoder)
    return StreamedCorpus(folder, read, encoder, facts)


def read_index(folder: Path) -> list[ShardFacts] | None:
    with suppress(OSError, ValueError, TypeError):
        return [ShardFacts(*shard) for shard in json.loads(read_bytes(folder / "index.json"))]
    return None


def write_index(folder: Path, read: Callable[[], Iterator[Pair]], encoder: PairEncoder) -> list[ShardFacts]:
    """Encode the corpus once, a shard for each core at a time. What was indexed before an interruption is not encoded again."""
    numbers: list[int] = []

    def lengths_of(number: int) -> Path:
        return folder / f"lengths-{number:08d}"

    def facts_of(number: int) -> Path:
        return folder / f"facts-{number:08d}.json"

    def missing() -> Iterator[tuple[Path, list[Pair]]]:
        for number, shard in enumerate(cut_shards(read(), SHARD)):
            numbers.append(number)
            if read_facts(facts_of(number)) is None:
                yield shard_path(folder, number), shard

    def measure(shard: Path) -> None:
        store, number = load_store(shard), int(shard.name.removeprefix("shard-"))
        longer = np.maximum(store.source_lengths, store.target_lengths) + END
        size = sum(path.stat().st_size for path in shard.iterdir())
        tokens = int(store.target_lengths.sum()) + END * len(store)
        replace_bytes(lengths_of(number), longer.astype(np.uint32).tobytes())
        facts = ShardFacts(len(store), len(store.overlong), size, tokens)
        replace_text(facts_of(number), json.dumps(facts))  # last: a shard with facts is not encoded again
        folders.remove(shard)

    encode_items(missing(), encoder, finish=measure)
    facts = [one for one in map(read_facts, map(facts_of, numbers)) if one is not None]
    with output_bytes(folder / "lengths") as file:
        for number in numbers:
            file.write(read_bytes(lengths_of(number)))
    replace_text(folder / "index.json", json.dumps(facts))
    for number in numbers:
        facts_of(number).unlink()
        lengths_of(number).unlink()
    return facts


def read_facts(path: Path) -> ShardFacts | None:
    with suppress(OSError, ValueError, TypeError):
        return ShardFacts(*json.loads(read_bytes(path)))
    return None


def make_windows(sizes: Sequence[Sequence[int]], max_bytes: int) -> list[Window]:
    """The shards of each corpus in each window: as few windows as possible, each of at most a third of max_bytes;
    sizes: bytes of each shard of each corpus."""
    found = cut_windows(sizes, max_bytes // WINDOWS)
    if not isinstance(found, int):
        return found
    while isinstance(found, int):  # with more room, more corpora are in every window, which may need still more
        megabytes = -(-WINDOWS * found // 10**6)
        found = cut_windows(sizes, megabytes * 10**6 // WINDOWS)
    raise ConfigError(
        f"data.max_store_megabytes: given {max_bytes / 1e6:g}, expected at least {megabytes:,}, because {WINDOWS} windows are "
        f"on the disk at a time, each with at least {SHARD:,} pairs of every corpus that has as many"
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
