"""Plain text whose tokens need not fit on the disk, in windows (`windows.py`).

    index       tokens, bytes, lines and characters of each shard of SHARD characters
    a window    blocks of `text_blocks.py`; those that do not fill a batch are left out

The batches of an epoch are a function of (text, tokenizer, options, seed, epoch). How many batches a window has depends on the
number of its tokens alone, so that a resumed run goes to the window of its batch.

Blocks are inside a window, and are shuffled within it: a text that is sorted by its origin should be shuffled once before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from heedful.data.corpus_text import Passage, read_passage
from heedful.data.encode import cache_folder
from heedful.data.mixing import temper_weights
from heedful.data.text_blocks import BlockMixture, BlockShape, JoinedText, Starts, count_blocks
from heedful.data.text_store import TextEncoder, cut_lines, load_text, text_key
from heedful.data.windows import Measured, ShardFiles, Windows, bytes_of, make_windows, open_index
from heedful.text.tokenizer import Tokenizer

SHARD = 1 << 22  # characters; the order of the data depends on it


class TextFacts(NamedTuple):
    """What the index keeps of a shard."""

    tokens: int
    size: int  # bytes
    lines: int
    characters: int


class StreamedPassage(NamedTuple):
    """A corpus, of which few shards are on the disk at a time."""

    files: ShardFiles[str]
    facts: Sequence[TextFacts]

    def tokens_of(self, shards: range) -> int:
        return sum(self.facts[number].tokens for number in shards)


class StreamedText:
    """The tokens of several corpora, of which only one window is in memory. The position of a token counts those of the windows
    before its own; the tokens of a corpus that is in every window have several."""

    def __init__(
        self,
        corpora: Sequence[StreamedPassage],
        shape: BlockShape,
        weights: Sequence[float],
        temperature: float,
        max_bytes: int,
    ) -> None:
        self.corpora, self.shape = corpora, shape
        self.sizes = [sum(shard.tokens for shard in corpus.facts) for corpus in corpora]  # in tokens
        self.weights = temper_weights([count_blocks(size, shape) for size in self.sizes], weights, temperature)
        sizes = [[shard.size for shard in corpus.facts] for corpus in corpora]
        self.windows = Windows([corpus.files for corpus in corpora], make_windows(sizes, max_bytes, f"{SHARD:,} characters"))
        self.begins = np.cumsum([0, *(sum(self.tokens_in(window)) for window in range(len(self.windows)))])
        self.current: tuple[int, JoinedText] | None = None

    @property
    def lines(self) -> int:
        return sum(shard.lines for corpus in self.corpora for shard in corpus.facts)

    @property
    def characters(self) -> int:
        return sum(shard.characters for corpus in self.corpora for shard in corpus.facts)

    def tokens_in(self, window: int) -> list[int]:
        """The number of tokens that a window has of each corpus."""
        shards = self.windows.windows[window]
        return [corpus.tokens_of(part) for corpus, part in zip(self.corpora, shards, strict=True)]

    def mixtures(self, window: int) -> list[BlockMixture]:
        """The blocks of each corpus in a window."""
        weights = self.windows.share_weights(self.weights)
        return [BlockMixture([size], self.shape, [one]) for size, one in zip(self.tokens_in(window), weights, strict=True)]

    def counts_in(self, window: int) -> list[int]:
        """The number of blocks that an epoch takes of each corpus from a window."""
        return [count for mixture in self.mixtures(window) for count in mixture.counts()]

    def counts(self) -> list[int]:
        """The number of blocks of each corpus in an epoch."""
        return [sum(column) for column in zip(*map(self.counts_in, range(len(self.windows))), strict=True)]

    def open_window(self, window: int) -> JoinedText:
        """The tokens of a window, a text for each corpus."""
        if self.current is None or self.current[0] != window:
            self.current = None  # before the next one is in memory
            shards = self.windows.load(window, lambda path: load_text(path).ids)
            self.current = window, JoinedText([np.concatenate([np.zeros(0, np.uint16), *corpus]) for corpus in shards])
        return self.current[1]

    def draw(self, window: int, *, seed: int, epoch: int) -> Starts:
        """The blocks of a window that an epoch trains on, in random order; positions are those of the window."""
        begins, drawn = np.cumsum([0, *self.tokens_in(window)]), []
        for number, mixture in enumerate(self.mixtures(window)):
            key, turn = self.windows.key(number, window, seed=seed, epoch=epoch)
            drawn.append(begins[number] + mixture.draw(seed=key, epoch=turn))
        starts = np.concatenate(drawn)
        np.random.Generator(np.random.Philox(key=[seed, epoch * len(self.windows) + window])).shuffle(starts)
        return starts

    def plan(self, epoch: int, *, rows: int, seed: int) -> StreamedBlocks:
        """The batches of an epoch; rows: the blocks of a batch."""
        return StreamedBlocks(self, rows, seed, epoch)

    def rows(self, starts: Starts, width: int) -> NDArray[np.int64]:
        """The sequences of `width` tokens that begin there, all in one window, (rows, width)."""
        window = int(np.searchsorted(self.begins, starts[0], side="right")) - 1
        return self.open_window(window).rows(starts - self.begins[window], width)


class StreamedBlocks(Sequence[Starts]):
    """The batches of an epoch, one window after the other; only the plan of one window is in memory."""

    def __init__(self, text: StreamedText, rows: int, seed: int, epoch: int) -> None:
        self.text, self.rows, self.seed, self.epoch = text, rows, seed, epoch
        self.ends = np.cumsum([sum(text.counts_in(window)) // rows for window in range(len(text.windows))])
        self.current: tuple[int, Starts] | None = None

    def __len__(self) -> int:
        return int(self.ends[-1])

    @overload
    def __getitem__(self, at: int) -> Starts: ...
    @overload
    def __getitem__(self, at: slice) -> list[Starts]: ...
    def __getitem__(self, at: int | slice) -> Starts | list[Starts]:
        if isinstance(at, slice):
            return [self[number] for number in range(*at.indices(len(self)))]
        if not 0 <= at < len(self):
            raise IndexError(at)
        window = int(np.searchsorted(self.ends, at, side="right"))
        if self.current is None or self.current[0] != window:
            drawn = self.text.draw(window, seed=self.seed, epoch=self.epoch)
            self.current = window, drawn + self.text.begins[window]
        first = (at - (int(self.ends[window - 1]) if window else 0)) * self.rows
        return self.current[1][first : first + self.rows]


def open_streamed(part: Passage, tokenizer: Tokenizer, cache: Path | None = None) -> StreamedPassage:
    """Return the shards of a corpus; their index is in the cache, or made by encoding the corpus once."""
    folder = (cache or cache_folder()) / "streams" / f"{text_key([part], tokenizer)}.{SHARD}"

    def cut() -> Iterator[list[str]]:
        return cut_lines(read_passage(part), SHARD)

    files = ShardFiles(folder, cut, TextEncoder(tokenizer))
    return StreamedPassage(files, open_index(files, TextFacts, measure))


def measure(shard: Path) -> Measured[TextFacts]:
    text = load_text(shard)
    return Measured(TextFacts(len(text.ids), bytes_of(shard), text.lines, text.characters), np.zeros(0, np.uint32))
