"""Encoded pairs in memory-mapped files: opening a store is free, and only the pages that are used are read.

    <side>.values     token ids of the side, concatenated                 uint16, or uint32 for large vocabularies
    <side>.offsets    pair i has values[offsets[i] : offsets[i + 1]]      int64, (pairs + 1,)
    lines             line number of pair i in its file, from 1           int64
    overlong          lines left out because a side exceeds max_length    int64
    text.values       if texts are kept: source 0, target 0, source 1, …  UTF-8
    text.offsets                                                          int64
    MANIFEST.json     size and SHA-256 of each file; written last, so a folder without it is not a store

Ids do not include start and end tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.storage.manifest import Damaged, checked_manifest
from heedful.storage.mapping import map_array

Ids = NDArray[np.unsignedinteger[Any]]


class PairStore:
    """The pairs of one corpus."""

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder = folder
        source_type, target_type = manifest["types"]
        self._source_ids = map_array(folder / "source.values", source_type)  # (source tokens,)
        self._target_ids = map_array(folder / "target.values", target_type)  # (target tokens,)
        self._source_offsets = map_array(folder / "source.offsets", "int64")  # (pairs + 1,)
        self._target_offsets = map_array(folder / "target.offsets", "int64")  # (pairs + 1,)
        self.source_lengths = row_lengths(self._source_offsets)  # (pairs,)
        self.target_lengths = row_lengths(self._target_offsets)  # (pairs,)
        self.lines = map_array(folder / "lines", "int64")  # (pairs,)
        self.overlong = map_array(folder / "overlong", "int64")  # (pairs left out,)
        self._text: NDArray[Any] | None = None
        if manifest["keeps_text"]:
            self._text = map_array(folder / "text.values", "uint8")
            self._text_offsets = map_array(folder / "text.offsets", "int64")  # (2 x pairs + 1,)

    def __len__(self) -> int:
        return len(self.lines)

    def source(self, index: int) -> Ids:
        return self._source_ids[self._source_offsets[index] : self._source_offsets[index + 1]]

    def target(self, index: int) -> Ids:
        return self._target_ids[self._target_offsets[index] : self._target_offsets[index + 1]]

    def text(self, index: int) -> tuple[str, str]:
        """Return source and target before encoding; only in a store that keeps text."""
        assert self._text is not None, "this store was built without keep_text"
        begin, middle, end = self._text_offsets[2 * index : 2 * index + 3]
        return self._text[begin:middle].tobytes().decode(), self._text[middle:end].tobytes().decode()


class StoresOfPairs:
    """Pairs by their index in several stores."""

    def find(self, index: int) -> tuple[PairStore | JoinedStore, int]:
        """Return the store that has the pair, and the pair's index in it."""
        raise NotImplementedError

    def source(self, index: int) -> Ids:
        store, inside = self.find(index)
        return store.source(inside)

    def target(self, index: int) -> Ids:
        store, inside = self.find(index)
        return store.target(inside)

    def text(self, index: int) -> tuple[str, str]:
        store, inside = self.find(index)
        return store.text(inside)


class JoinedStore(StoresOfPairs):
    """The concatenation of several stores."""

    def __init__(self, stores: Sequence[PairStore]) -> None:
        assert stores, "at least one store"
        self.stores = tuple(stores)
        self.sizes = tuple(len(store) for store in stores)
        self._ends = np.cumsum(self.sizes)
        self.source_lengths = concatenate([store.source_lengths for store in stores])
        self.target_lengths = concatenate([store.target_lengths for store in stores])
        self.overlong = sum(len(store.overlong) for store in stores)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def find(self, index: int) -> tuple[PairStore, int]:
        number = int(np.searchsorted(self._ends, index, side="right"))
        return self.stores[number], int(index - self._ends[number] + self.sizes[number])


def concatenate(parts: Sequence[NDArray[np.int32]]) -> NDArray[np.int32]:
    """Concatenate the parts; a single one is returned without a copy."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def row_lengths(offsets: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return offsets[i + 1] - offsets[i] as int32, without an int64 copy of twice the size."""
    lengths = np.empty(len(offsets) - 1, np.int32)
    return np.subtract(offsets[1:], offsets[:-1], out=lengths, casting="unsafe")


def load_store(folder: Path) -> PairStore:
    """Open a store after comparing every file with the manifest; OSError if there is none."""
    manifest = checked_manifest(folder)
    try:
        return PairStore(folder, manifest)
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged(f"its manifest cannot be used ({error})") from error
