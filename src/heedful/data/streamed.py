"""Sentence pairs whose tokens need not fit on the disk, in windows (`windows.py`).

    index       pairs, bytes and target tokens of each shard of SHARD pairs; the lengths of all pairs
    a window    the batches of `batching.py`

The batches of an epoch are a function of (text, tokenizers, options, seed, epoch). How many batches a window has depends on the
lengths of its pairs alone, which are kept, so that a resumed run goes to the window of its batch.

Pairs are shuffled within a window only: a text that is sorted by its origin should be shuffled once before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from heedful.data.batching import END, Index, batch_starts, plan_epoch
from heedful.data.encode import Encoder, PairEncoder, StoreOptions, cache_folder, cut_shards, key_of, without_dropped
from heedful.data.mixing import corpus_counts, mix_corpora
from heedful.data.pairs import Pair, pairs
from heedful.data.sources import CorpusConfig
from heedful.data.store import JoinedStore, StoresOfPairs, load_store
from heedful.data.windows import Measured, ShardFiles, Windows, bytes_of, make_windows, open_index
from heedful.storage.mapping import map_array

SHARD = 25_000  # pairs; the order of the data depends on it


class PairFacts(NamedTuple):
    """What the index keeps of a shard, besides the lengths of its pairs."""

    pairs: int
    overlong: int
    size: int  # bytes
    target_tokens: int


class StreamedCorpus:
    """The pairs of one corpus, of which few are on the disk at a time."""

    def __init__(self, files: ShardFiles[Pair], facts: Sequence[PairFacts]) -> None:
        self.files, self.facts = files, facts
        self.begins = np.cumsum([0, *(shard.pairs for shard in facts)])  # of each shard, in pairs
        self.longer = map_array(files.folder / "lengths", "uint32")  # (pairs,): the longer side of each, with its end token

    def __len__(self) -> int:
        return int(self.begins[-1])

    def pairs_of(self, shards: range) -> slice:
        """The pairs of consecutive shards."""
        return slice(int(self.begins[shards.start]), int(self.begins[shards.stop]))


class StreamedStore(StoresOfPairs):
    """The pairs of several corpora, as those of a `JoinedStore`; only pairs of one window are in memory. The index of a pair
    counts those of the windows before its own; a pair that is in every window has several."""

    def __init__(self, corpora: Sequence[StreamedCorpus], weights: Sequence[float], max_bytes: int) -> None:
        self.corpora, self.weights = corpora, weights
        sizes = [[shard.size for shard in corpus.facts] for corpus in corpora]
        self.windows = Windows([corpus.files for corpus in corpora], make_windows(sizes, max_bytes, f"{SHARD:,} pairs"))
        self.begins = np.cumsum([0, *(sum(self.sizes_in(window)) for window in range(len(self.windows)))])  # in pairs
        self.overlong = sum(shard.overlong for corpus in corpora for shard in corpus.facts)
        self.current: tuple[int, JoinedStore] | None = None

    def __len__(self) -> int:
        return sum(map(len, self.corpora))

    def parts_of(self, window: int) -> list[slice]:
        """The pairs that a window has of each corpus."""
        shards = self.windows.windows[window]
        return [corpus.pairs_of(part) for corpus, part in zip(self.corpora, shards, strict=True)]

    def sizes_in(self, window: int) -> list[int]:
        """The number of pairs that a window has of each corpus."""
        return [part.stop - part.start for part in self.parts_of(window)]

    def epoch_counts(self) -> list[int]:
        """The number of pairs of each corpus in an epoch."""
        weights = self.windows.share_weights(self.weights)
        counts = [corpus_counts(self.sizes_in(window), weights) for window in range(len(self.windows))]
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
        """The pairs of a window."""
        if self.current is None or self.current[0] != window:
            self.current = None  # before the next one is in memory
            stores = self.windows.load(window, load_store)
            self.current = window, JoinedStore([store for corpus in stores for store in corpus])
        return self.current[1]

    def draw(self, window: int, *, seed: int, epoch: int) -> Index:
        """The pairs of a window that an epoch trains on, as indices of the window."""
        drawn, begin = [], 0
        for number, (size, weight) in enumerate(
            zip(self.sizes_in(window), self.windows.share_weights(self.weights), strict=True)
        ):
            key, turn = self.windows.key(number, window, seed=seed, epoch=epoch)
            drawn.append(begin + mix_corpora([size], [weight], seed=key, epoch=turn))
            begin += size
        return np.concatenate(drawn)

    def plan(self, epoch: int, *, budget: int, seed: int, pad_to_multiple_of: int) -> StreamedPlan:
        """The batches of an epoch."""
        return StreamedPlan(self, budget, seed, epoch, pad_to_multiple_of)

    def batch_counts(self, epoch: int, *, budget: int, seed: int, pad_to_multiple_of: int) -> NDArray[np.int64]:
        """The number of batches of each window."""
        counts = []
        for window in range(len(self.windows)):
            parts = [corpus.longer[part] for corpus, part in zip(self.corpora, self.parts_of(window), strict=True)]
            longer = np.concatenate(parts)[self.draw(window, seed=seed, epoch=epoch)]
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
    """Return the pairs of a corpus; their index is in the cache, or made by encoding the corpus once."""
    folder = (cache or cache_folder()) / "streams" / f"{key_of(corpus, encoders, options, dropped)}.{SHARD}"

    def cut() -> Iterator[list[Pair]]:
        return cut_shards(without_dropped(dropped, pairs(corpus, max_ratio=options.max_ratio)), SHARD)

    files = ShardFiles(folder, cut, PairEncoder(encoders, options))
    return StreamedCorpus(files, open_index(files, PairFacts, measure))


def measure(shard: Path) -> Measured[PairFacts]:
    store = load_store(shard)
    longer = np.maximum(store.source_lengths, store.target_lengths) + END
    tokens = int(store.target_lengths.sum()) + END * len(store)
    return Measured(PairFacts(len(store), len(store.overlong), bytes_of(shard), tokens), longer.astype(np.uint32))
