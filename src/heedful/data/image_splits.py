"""The images of each split of a run, stored: read from files, generated, or a part of the training images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from heedful.data.fractions import Fractions, SplitPart
from heedful.data.image_files import ImageFormat
from heedful.data.image_store import ImageStore, open_images
from heedful.data.images import ImageReader, UnusableItem, rows_of_part
from heedful.data.report import CorpusCheck, Example, Finding
from heedful.data.splits import SPLITS, Counts
from heedful.data.unusable import EXAMPLES
from heedful.errors import DataError


class SplitOptions(Protocol):
    """The options of [data] that make splits."""

    @property
    def builtin(self) -> str | None: ...
    @property
    def counts(self) -> Counts | None: ...
    @property
    def train(self) -> object | None: ...
    @property
    def split(self) -> Fractions | None: ...
    @property
    def max_unusable(self) -> float: ...
    def makes(self, split: str) -> bool: ...


class ImageSplitFiles:
    def __init__(
        self,
        data: SplitOptions,
        form: ImageFormat,
        find_reader: Callable[[str], ImageReader | None],
        draw: Callable[[str, int], ImageStore],
    ) -> None:
        """find_reader: the files of a split, None: it has none; draw: generates images of a split."""
        self.data, self.form, self.find_reader, self.draw = data, form, find_reader, draw
        self.stores: dict[str, ImageStore | None] = {}  # by split; opening one computes the hash of all its files

    def title(self, split: str) -> str:
        reader = self.find_reader(split)
        return f"built-in {self.data.builtin} {split}" if reader is None else reader.title

    def store(self, split: str) -> ImageStore | None:
        """The images that a split is, or is a part of; None if the run has no such split."""
        origin = "train" if self.data.makes(split) else split
        if origin not in self.stores:
            self.stores[origin] = self.open(origin)
        return self.stores[origin]

    def open(self, split: str) -> ImageStore | None:
        reader = self.find_reader(split)
        if reader is not None:
            return open_images(reader, self.form)
        if self.data.builtin is None or (split == "test" and self.data.train is not None):
            return None
        return self.draw(split, getattr(self.data.counts or Counts(), split))

    def part(self, store: ImageStore, split: str) -> NDArray[np.int64]:
        """The rows of the store that belong to the split."""
        if self.data.split is None or not self.data.makes(split):
            return np.arange(len(store.labels))
        rows = rows_of_part(store.pixels, SplitPart(split, self.data.split))
        if not len(rows):
            self.refuse_unusable(store)
            raise DataError(
                SplitPart(split, self.data.split).empty(self.title(split), "image"),
                hint="use a larger fraction, or more images",
            )
        return rows

    def refuse_unusable(self, store: ImageStore) -> None:
        """Raise an error if more of the training images are unusable than `data.max_unusable` allows: the cause where too few
        are left."""
        kept = len(store.labels)
        check = CorpusCheck(
            split="train",
            title=self.title("train"),
            total=kept + len(store.unusable),
            kept=kept,
            findings=findings_of(store.unusable),
            dropped=np.zeros(0, np.int64),
            unit="images",
            items="images",
        )
        refusal = check.training_error(self.data.max_unusable) if store.unusable else None
        if refusal is not None:
            raise refusal

    def unusable(self, store: ImageStore, split: str) -> list[UnusableItem]:
        """The unusable images to report for a split: those of files that are split are reported once."""
        return store.unusable if split == "train" or not self.data.makes(split) else []

    def files(self) -> list[Path]:
        readers = [self.find_reader(split) for split in SPLITS]
        return list(dict.fromkeys(file for reader in readers if reader is not None for file in reader.files()))


def findings_of(unusable: list[UnusableItem]) -> tuple[Finding, ...]:
    """The unusable images by kind, with the first of each."""
    kinds = Counter(item.kind for item in unusable)
    return tuple(
        Finding(
            kind,
            count,
            "skipped",
            tuple([Example(item.place, item.text) for item in unusable if item.kind == kind][:EXAMPLES]),
        )
        for kind, count in kinds.items()
    )
