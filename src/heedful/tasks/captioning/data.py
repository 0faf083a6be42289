"""The data of captioning: decoded images of each split with their captions, and batches of them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from heedful.data.augment import AugmentConfig, augment, epoch_draws
from heedful.data.captions import CaptionsConfig, find_reader
from heedful.data.image_files import ImageFormat, Pixels
from heedful.data.image_splits import ImageSplitFiles, findings_of
from heedful.data.image_store import ImageStore
from heedful.data.report import CheckReport, CorpusCheck
from heedful.data.shape_scenes import draw_scenes, word_patches
from heedful.data.splits import SPLITS, Counts
from heedful.errors import DataError
from heedful.evaluation.word_alignment import Alignment
from heedful.tasks.base import ExampleFile, RunConfig, Tokenizers
from heedful.tasks.batches import Batch, pad
from heedful.tasks.image_inputs import input_of
from heedful.text.specials import Specials


class CaptionSet(NamedTuple):
    """The images of a split with their captions: some rows of stored images."""

    pixels: Pixels  # (stored, height, width, channels)
    rows: NDArray[np.int64]  # (images,)
    captions: list[str]  # of each image

    def select(self, chosen: Sequence[int] | NDArray[np.int64]) -> CaptionSet:
        return CaptionSet(self.pixels, self.rows[chosen], [self.captions[at] for at in chosen])


class CaptionSplits(NamedTuple):
    train: CaptionSet
    tokens: list[list[int]]  # of the captions of train
    left_out: int  # images whose captions are too long
    valid: CaptionSet


def make_batch(pixels: Pixels, targets: Sequence[Sequence[int]], specials: Specials, length: int = 0) -> Batch:
    """pixels (images, height, width, channels), targets: tokens of captions; length: to pad to, if that is longer."""
    target_in = pad([[specials.start, *row] for row in targets], specials.pad)
    target_out = pad([[*row, specials.end] for row in targets], specials.pad)
    missing = (0, max(length - target_in.shape[1], 0))
    target_in, target_out = (torch.nn.functional.pad(side, missing, value=specials.pad) for side in (target_in, target_out))
    return Batch(torch.from_numpy(pixels), None, target_in, target_out, sum(len(row) + 1 for row in targets))


@lru_cache(maxsize=3)  # the splits of a run
def draw_store(split: str, count: int, form: ImageFormat) -> ImageStore:
    """Generated images with their captions."""
    drawn = list(draw_scenes(split, count, form))
    return ImageStore.of(np.stack([one.pixels for one in drawn]), [one.scene.caption for one in drawn])


class CaptionData:
    def __init__(self, run: RunConfig) -> None:
        self.data: CaptionsConfig = run.data
        model: Any = run.model
        self.seed, self.patch, shape = run.seed, int(model.patch), run.model.image_shape
        assert shape is not None, "the task trains models of images"
        height, width, channels = shape
        self.form = ImageFormat(height, width, channels, resize=self.data.resize, convert_channels=self.data.convert_channels)
        self.splits = ImageSplitFiles(self.data, self.form, partial(find_reader, self.data), self.draw)

    def draw(self, split: str, count: int) -> ImageStore:
        """Generated images."""
        return draw_store(split, count, self.form)

    def alignments(self, split: str) -> Iterator[Alignment] | None:
        """For each image of a split the (patch, word) pairs where the word refers to what the patch shows; None: not known."""
        if self.data.builtin is None or getattr(self.data, split) is not None:
            return None
        return (
            Alignment(pairs, pairs)
            for drawn in draw_scenes(split, getattr(self.data.counts or Counts(), split), self.form)
            for found in [word_patches(drawn.scene, self.form, self.patch)]
            for pairs in [frozenset((patch, word) for word, patches in enumerate(found) for patch in patches)]
        )

    def images(self, split: str) -> CaptionSet | None:
        """The usable images of a split; None if the run has none."""
        store = self.splits.store(split)
        if store is None:
            return None
        rows = self.splits.part(store, split)
        names = [" ".join(name.split()) for name in store.names]
        return CaptionSet(store.pixels, rows, [names[at] for at in store.labels[rows]])

    def check(self) -> CheckReport:
        """Decode every image once; report the unusable ones."""
        return CheckReport(tuple(check for split in SPLITS if (check := self.check_split(split)) is not None))

    def check_split(self, split: str) -> CorpusCheck | None:
        store = self.splits.store(split)
        if store is None:
            return None
        shown = self.splits.unusable(store, split)
        images = self.images(split) if len(store.labels) else None
        kept = 0 if images is None else len(images.captions)
        return CorpusCheck(
            split=split,
            title=self.splits.title(split),
            total=kept + len(shown),
            kept=kept,
            findings=findings_of(shown),
            dropped=np.zeros(0, np.int64),
            unit="images",
            remark=f"{len(set(images.captions)):,} different captions" if images is not None else "",
            items="images",
        )

    def files(self) -> list[Path]:
        return self.splits.files()

    def lines(self, side: Literal["source", "target"]) -> Iterator[str]:
        """The captions; images have no text."""
        images = self.images("train") if side == "target" else None
        return iter(() if images is None else images.captions)

    @property
    def tags(self) -> list[str]:
        return []

    def prepare(self, tokenizers: Tokenizers, report: CheckReport) -> CaptionSplits:
        train, valid = self.images("train"), self.images("valid")
        assert train is not None and valid is not None, "the config requires both"
        if self.data.limit:
            order = np.random.Generator(np.random.Philox(key=[self.seed, 2**40])).permutation(len(train.rows))
            train = train.select(order[: self.data.limit])
        tokens = tokenizers[1].encode_many(train.captions)
        fits = [at for at, ids in enumerate(tokens) if len(ids) <= self.data.max_length]
        if not fits:
            title, shortest = self.splits.title("train"), min(map(len, tokens))
            raise DataError(
                f"every caption of {title} has {shortest} tokens or more; expected at most data.max_length = "
                f"{self.data.max_length}",
                hint="set a larger data.max_length",
            )
        return CaptionSplits(train.select(fits), [tokens[at] for at in fits], len(tokens) - len(fits), valid)

    def augmented(self, images: CaptionSet, chosen: NDArray[np.int64], *, epoch: int) -> Pixels:
        """The pixels of training images, changed at random: (images, height, width, channels)."""
        config: AugmentConfig = self.data.augment
        rows = images.rows[chosen]
        return augment(images.pixels[rows], epoch_draws(self.seed, epoch, len(images.pixels))[rows], config)

    def usage_and_limits(self, folder: str) -> tuple[str, str]:
        """A usage example and the limits of the model, for its card."""
        shape = [self.form.height, self.form.width, self.form.channels]
        usage = (
            f'import numpy\n\ncaptioner = heedful.load("{folder}")\n'
            f'image = numpy.zeros({shape}, "uint8")  # or the path of a file\ncaptioner.predict([image])'
        )
        size = f"Images are {self.form.width} pixels wide and {self.form.height} high, with {self.form.channels} channels"
        return usage, f"{size}; captions have at most {self.data.max_length} tokens."


def format_examples(examples: Iterable[Any]) -> ExampleFile:
    """(image, caption) tuples as lines of CSV; an image is a path or an array of bytes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["path", "caption"])
    for number, example in enumerate(examples, start=1):
        pair = list(example) if isinstance(example, tuple | list) else []
        if len(pair) != 2 or not isinstance(pair[1], str) or not pair[1].strip():
            raise DataError(
                f"example {number} is {example!r:.60}; expected a tuple (image, caption), the image a path or an array"
            )
        writer.writerow([input_of(pair[0], number), pair[1]])
    return ExampleFile(".csv", text.getvalue(), "file", data={"path": "path", "caption": "caption"})
