"""Word alignments beside a corpus, made ready to guide attention: links between pieces, in step with the token store.

    a line of the file     0-0 1-2 1-3          words of the source and of the target, from 0 (Pharaoh); i?j counts as i-j
    links.values           source piece, target piece, source piece, …        uint32
    links.offsets          pair i of the store has values[offsets[i] : offsets[i + 1]]                     int64

Line n of the file belongs to line n of the corpus, whatever the check drops from it: the store knows the line of each of its
pairs. The built-in corpus knows its own alignments. Like the store, what was made once is kept in the cache and found by what
it was made from.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from heedful.data.encode import Ragged, cache_folder, content_hash, find_or_build, grammar_fingerprint
from heedful.data.gold import refuse_beyond
from heedful.data.input_lines import read_texts
from heedful.data.sources import CorpusConfig, find_path
from heedful.data.store import PairStore
from heedful.errors import DataError
from heedful.evaluation.word_alignment import Alignment, Link, parse_alignment
from heedful.storage.manifest import FORMAT, Damaged, checked_manifest, write_manifest
from heedful.storage.mapping import map_array

log = logging.getLogger(__name__)


class Spells(Protocol):
    """What is needed of a tokenizer."""

    def word_of(self, ids: Any, /) -> list[int]: ...


class Links:
    """Links between the pieces of each pair of one store."""

    def __init__(self, folder: Path) -> None:
        self._values = map_array(folder / "links.values", "uint32")
        self._offsets = map_array(folder / "links.offsets", "int64")  # (pairs + 1,)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def of(self, index: int) -> NDArray[np.uint32]:
        """(links, 2): source piece, target piece."""
        return self._values[self._offsets[index] : self._offsets[index + 1]].reshape(-1, 2)


class JoinedLinks:
    """Those of several stores one after the other, as a `JoinedStore` numbers their pairs."""

    def __init__(self, parts: Sequence[Links]) -> None:
        self.parts = tuple(parts)
        self._ends = np.cumsum([len(part) for part in parts])

    def of(self, index: int) -> NDArray[np.uint32]:
        number = int(np.searchsorted(self._ends, index, side="right"))
        return self.parts[number].of(int(index - self._ends[number] + len(self.parts[number])))


class Aligned(NamedTuple):
    """A corpus, the store of its pairs, and how many lines it has."""

    corpus: CorpusConfig
    store: PairStore
    lines: int


def open_links(aligned: Aligned, encoders: tuple[Spells, Spells], cache: Path | None = None) -> Links:
    """The links of a store's pairs: found in the cache, or made from the alignment file or the grammar."""
    path = alignment_file(aligned.corpus)
    content = grammar_fingerprint() if path is None else content_hash(path)
    key = sha256(f"{FORMAT} {aligned.store.folder.name} {content}".encode()).hexdigest()[:32]
    folder = (cache or cache_folder()) / "links" / key
    return find_or_build(folder, find_links, lambda partial: write_links(partial, aligned, encoders))


def find_links(folder: Path) -> Links | None:
    try:
        checked_manifest(folder)
        return Links(folder)
    except OSError:  # there are none
        return None
    except Damaged as damage:
        log.warning("the links %s are damaged and will be made again: %s", folder, damage)
        return None


def alignment_file(corpus: CorpusConfig) -> Path | None:
    """Of the corpus; None: the built-in one, which needs none."""
    if corpus.alignment is None:
        assert corpus.builtin, "a corpus without an alignment file is refused before"
        return None
    return find_path(corpus.alignment)


def write_links(folder: Path, aligned: Aligned, encoders: tuple[Spells, Spells]) -> None:
    corpus, store, lines = aligned
    path, shift = alignment_file(corpus), int(corpus.tag is not None)  # the tag is the first word of the source
    numbers = iter(store.lines.tolist())
    waiting, index, read = next(numbers, None), 0, 0
    with Ragged(folder, "links") as ragged:
        for read, line in enumerate(word_links(corpus, path), start=1):
            if read != waiting:
                continue
            source, target = (
                np.array(side.word_of(ids.tolist()), int) for side, ids in zip(encoders, pair_of(store, index), strict=True)
            )
            refuse_beyond(line, words_in(source) - shift, words_in(target), f"{path} line {read}")
            values = piece_links([(i + shift, j) for i, j in line.possible], source, target)
            ragged.append(values.astype(np.uint32).ravel(), np.array([values.size]))
            waiting, index = next(numbers, None), index + 1
    if read != lines:
        raise DataError(
            f"{path} has {read:,} lines, but its corpus has {lines:,}; line n must align the pair of line n",
            hint="a pair without links has an empty line",
        )
    write_manifest(folder, {})


def pair_of(store: PairStore, index: int) -> tuple[NDArray[Any], NDArray[Any]]:
    return store.source(index), store.target(index)


def word_links(corpus: CorpusConfig, path: Path | None) -> Iterator[Alignment]:
    """Those of every line of the corpus."""
    if path is not None:
        for number, line in enumerate(read_texts(path), start=1):
            yield parse_alignment(line, f"{path} line {number}")
        return
    from heedful.data.grammar import generate

    assert corpus.count is not None, "a built-in corpus has a count"
    split = cast(Literal["train", "valid", "test"], corpus.split or "train")
    for sentence in generate(split, corpus.count, corpus.seed or 0):
        yield Alignment(sentence.alignment, sentence.alignment)


def words_in(words: NDArray[np.int64]) -> int:
    """How many there are, from the word that each piece belongs to."""
    return int(words.max(initial=-1)) + 1


def piece_links(links: Sequence[Link], source_words: NDArray[np.int64], target_words: NDArray[np.int64]) -> NDArray[np.int64]:
    """Linked words link all their pieces: (links, 2), source piece and target piece."""
    marks = np.zeros((words_in(source_words), words_in(target_words)), bool)
    if links:
        marks[tuple(np.array(links).T)] = True
    return np.argwhere(marks[np.ix_(source_words, target_words)])
