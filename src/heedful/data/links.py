"""Word alignments of a corpus for guided attention: links between tokens, aligned with the token store.

    a line of the file     0-0 1-2 1-3          source word - target word, from 0 (Pharaoh); i?j is read as i-j
    links.values           source piece, target piece, source piece, …        uint32
    links.offsets          pair i of the store has values[offsets[i] : offsets[i + 1]]                     int64

Line n of the file belongs to line n of the corpus before any pairs are dropped: the store has the line number of each of its
pairs. The built-in corpus has its own alignments. Like the store, links are cached by the content they were built from.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from heedful.data.encode import Ragged, builtin_fingerprint, cache_folder, content_hash, find_or_build
from heedful.data.gold import refuse_out_of_range
from heedful.data.input_lines import read_texts
from heedful.data.sources import CorpusConfig, builtin_pairs, find_path
from heedful.data.store import PairStore
from heedful.errors import DataError
from heedful.evaluation.word_alignment import Alignment, Link, parse_alignment
from heedful.storage.manifest import FORMAT, Damaged, checked_manifest, write_manifest
from heedful.storage.mapping import map_array

log = logging.getLogger(__name__)


class WordTokenizer(Protocol):
    """The part of a tokenizer that links need."""

    def word_of(self, ids: Any, /) -> list[int]: ...


class Links:
    """Links between the tokens of each pair of one store."""

    def __init__(self, folder: Path) -> None:
        self._values = map_array(folder / "links.values", "uint32")
        self._offsets = map_array(folder / "links.offsets", "int64")  # (pairs + 1,)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def of(self, index: int) -> NDArray[np.uint32]:
        """Return the links of a pair, (links, 2): source token, target token."""
        return self._values[self._offsets[index] : self._offsets[index + 1]].reshape(-1, 2)


class JoinedLinks:
    """The links of several stores, with the indices of a `JoinedStore`."""

    def __init__(self, parts: Sequence[Links]) -> None:
        self.parts = tuple(parts)
        self._ends = np.cumsum([len(part) for part in parts])

    def of(self, index: int) -> NDArray[np.uint32]:
        number = int(np.searchsorted(self._ends, index, side="right"))
        return self.parts[number].of(int(index - self._ends[number] + len(self.parts[number])))


class AlignedCorpus(NamedTuple):
    """A corpus, the store of its pairs, and its number of lines."""

    corpus: CorpusConfig
    store: PairStore
    lines: int


def open_links(aligned: AlignedCorpus, encoders: tuple[WordTokenizer, WordTokenizer], cache: Path | None = None) -> Links:
    """Return the links of a store's pairs, from the cache, or built from the alignment file or by the built-in corpus."""
    path = alignment_file(aligned.corpus)
    content = builtin_fingerprint(is_toy=isinstance(aligned.corpus.builtin, str)) if path is None else content_hash(path)
    key = sha256(f"{FORMAT} {aligned.store.folder.name} {content}".encode()).hexdigest()[:32]
    folder = (cache or cache_folder()) / "links" / key
    return find_or_build(folder, load_links, lambda partial: write_links(partial, aligned, encoders))


def load_links(folder: Path) -> Links | None:
    try:
        checked_manifest(folder)
        return Links(folder)
    except OSError:  # missing
        return None
    except Damaged as damage:
        log.warning("the alignment links %s are damaged and will be rebuilt: %s", folder, damage)
        return None


def alignment_file(corpus: CorpusConfig) -> Path | None:
    """Return the alignment file of a corpus; None for the built-in one, which needs none."""
    if corpus.alignment is None:
        assert corpus.builtin, "the config requires an alignment file for other corpora"
        return None
    return find_path(corpus.alignment)


def write_links(folder: Path, aligned: AlignedCorpus, encoders: tuple[WordTokenizer, WordTokenizer]) -> None:
    corpus, store, lines = aligned
    path, shift = alignment_file(corpus), int(corpus.tag is not None)  # the tag is the first word of the source
    numbers = iter(store.lines.tolist())
    waiting, index, read = next(numbers, None), 0, 0
    with Ragged(folder, "links") as ragged:
        for read, line in enumerate(read_word_links(corpus, path), start=1):
            if read != waiting:
                continue
            source, target = (
                np.array(side.word_of(ids.tolist()), int) for side, ids in zip(encoders, token_pair(store, index), strict=True)
            )
            refuse_out_of_range(line, count_words(source) - shift, count_words(target), f"{path} line {read}")
            values = expand_to_pieces([(i + shift, j) for i, j in line.possible], source, target)
            ragged.append(values.astype(np.uint32).ravel(), np.array([values.size]))
            waiting, index = next(numbers, None), index + 1
    if read != lines:
        raise DataError(
            f"{path} has {read:,} lines, but its corpus has {lines:,}; expected the same number, with line n for pair n",
            hint="write an empty line for a pair without links",
        )
    write_manifest(folder, {})


def token_pair(store: PairStore, index: int) -> tuple[NDArray[Any], NDArray[Any]]:
    return store.source(index), store.target(index)


def read_word_links(corpus: CorpusConfig, path: Path | None) -> Iterator[Alignment]:
    """Yield the word alignment of every line of the corpus."""
    if path is not None:
        for number, line in enumerate(read_texts(path), start=1):
            yield parse_alignment(line, f"{path} line {number}")
        return
    for pair in builtin_pairs(corpus):
        yield Alignment(pair.alignment, pair.alignment)


def count_words(words: NDArray[np.int64]) -> int:
    """Return the number of words, given the word index of each token."""
    return int(words.max(initial=-1)) + 1


def expand_to_pieces(
    links: Sequence[Link], source_words: NDArray[np.int64], target_words: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Link all tokens of linked words: (links, 2), source token and target token."""
    marks = np.zeros((count_words(source_words), count_words(target_words)), bool)
    if links:
        marks[tuple(np.array(links).T)] = True
    return np.argwhere(marks[np.ix_(source_words, target_words)])
