"""The data of image classification: decoded images of each split, and batches of them."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.data.augment import LabeledAugmentConfig, augment, epoch_draws, plan_mixing
from heedful.data.image_files import ImageFormat, Pixels
from heedful.data.image_splits import ImageSplitFiles, findings_of
from heedful.data.image_store import ImageStore
from heedful.data.images import ImagesConfig, find_reader
from heedful.data.report import CheckReport, CorpusCheck
from heedful.data.shapes import draw_shapes
from heedful.data.splits import SPLITS
from heedful.errors import DataError, nearest
from heedful.tasks.base import ExampleFile, RunConfig, Tokenizers
from heedful.tasks.image_classification.config import ImageClassificationConfig
from heedful.tasks.image_inputs import input_of


class ImageBatch(NamedTuple):
    pixels: Tensor  # (images, height, width, channels), uint8
    labels: Tensor  # (images,): index of the label
    mixed_labels: Tensor  # (images,): label of the image that a part of the pixels is from
    mixed_shares: Tensor  # (images,): fraction of these pixels; 0: none

    def pin(self) -> ImageBatch:
        return ImageBatch(*(tensor.pin_memory() for tensor in self))

    def to(self, device: torch.device) -> ImageBatch:
        return ImageBatch(*(tensor.to(device, non_blocking=True) for tensor in self))


class ImageSet(NamedTuple):
    """The images of a split: some rows of stored images."""

    pixels: Pixels  # (stored, height, width, channels)
    rows: NDArray[np.int64]  # (images,)
    labels: NDArray[np.int64]  # (images,): indices of the labels of the task

    def batch(self, chosen: NDArray[np.int64]) -> ImageBatch:
        labels = torch.from_numpy(self.labels[chosen])
        return ImageBatch(torch.from_numpy(self.pixels[self.rows[chosen]]), labels, labels, torch.zeros(len(labels)))

    def augmented_batch(self, chosen: NDArray[np.int64], config: LabeledAugmentConfig, *, seed: int, epoch: int) -> ImageBatch:
        """A batch of training images, changed at random."""
        draws = epoch_draws(seed, epoch, len(self.pixels))  # (stored, DRAWS)

        def changed(rows: NDArray[np.int64]) -> Pixels:
            return augment(self.pixels[rows], draws[rows], config)

        pixels, labels = changed(self.rows[chosen]), torch.from_numpy(self.labels[chosen])
        if not config.cutmix:
            return ImageBatch(torch.from_numpy(pixels), labels, labels, torch.zeros(len(labels)))
        mixing = plan_mixing(draws[self.rows[chosen]], config.cutmix, len(self.rows), *pixels.shape[1:3])
        pixels = np.where(mixing.is_replaced[..., None], changed(self.rows[mixing.partners]), pixels)
        mixed_labels = torch.from_numpy(self.labels[mixing.partners])
        return ImageBatch(torch.from_numpy(pixels), labels, mixed_labels, torch.from_numpy(mixing.shares))


class ImageSplits(NamedTuple):
    train: ImageSet
    valid: ImageSet


class ImageData:
    def __init__(self, run: RunConfig) -> None:
        self.config: ImageClassificationConfig = run.task
        self.data: ImagesConfig = run.data
        self.seed, shape = run.seed, run.model.image_shape
        assert shape is not None, "the task trains encoders of images"
        self.form = ImageFormat(*shape, resize=self.data.resize, convert_channels=self.data.convert_channels)
        self.splits = ImageSplitFiles(self.data, self.form, partial(find_reader, self.data), self.draw)

    def draw(self, split: str, count: int) -> ImageStore:
        """Generated images."""
        pixels, labels = draw_shapes(split, count, self.form)
        return ImageStore.of(pixels, labels)

    def collect_labels(self) -> tuple[str, ...]:
        store = self.splits.store("train")
        assert store is not None, "a run has training data"
        return tuple(sorted(store.names))

    def images(self, split: str) -> ImageSet | None:
        """The usable images of a split; None if the run has none. A label that the task does not have is an error."""
        store = self.splits.store(split)
        if store is None:
            return None
        labels = self.config.labels if self.config.labels != "auto" else self.collect_labels()
        for name in store.names:
            if name not in labels:
                close = nearest(name, labels)
                raise DataError(
                    f"{self.splits.title(split)} has the label {name!r:.40}; expected one of: {', '.join(labels):.200}",
                    hint=f"did you mean {close!r}?" if close else "correct the label, or add it to task.labels",
                )
        rows = self.splits.part(store, split)
        index = np.array([labels.index(name) for name in store.names], np.int64)
        return ImageSet(store.pixels, rows, index[store.labels[rows]])

    def check(self) -> CheckReport:
        """Decode every image once; report the unusable ones and the number of images of each label."""
        return CheckReport(tuple(check for split in SPLITS if (check := self.check_split(split)) is not None))

    def check_split(self, split: str) -> CorpusCheck | None:
        store = self.splits.store(split)
        if store is None:
            return None
        shown = self.splits.unusable(store, split)
        images = self.images(split) if len(store.labels) else None
        kept = 0 if images is None else len(images.labels)
        labels = self.config.labels if self.config.labels != "auto" else self.collect_labels()
        counts = Counter() if images is None else Counter(images.labels.tolist())
        return CorpusCheck(
            split=split,
            title=self.splits.title(split),
            total=kept + len(shown),
            kept=kept,
            findings=findings_of(shown),
            dropped=np.zeros(0, np.int64),
            unit="images",
            remark=", ".join(f"{label}: {counts[at]:,}" for at, label in enumerate(labels)),
            items="images",
        )

    def files(self) -> list[Path]:
        return self.splits.files()

    def lines(self, side: Literal["source", "target"]) -> Iterator[str]:
        """Images have no text; the vocabulary is that of the labels."""
        return iter(self.config.known_labels if side == "target" else ())

    @property
    def tags(self) -> list[str]:
        return []

    def prepare(self, tokenizers: Tokenizers, report: CheckReport) -> ImageSplits:
        train, valid = self.images("train"), self.images("valid")
        assert train is not None and valid is not None, "the config requires both"
        if self.data.limit:
            order = np.random.Generator(np.random.Philox(key=[self.seed, 2**40])).permutation(len(train.labels))
            chosen = order[: self.data.limit]
            train = ImageSet(train.pixels, train.rows[chosen], train.labels[chosen])
        return ImageSplits(train, valid)

    def usage_and_limits(self, folder: str) -> tuple[str, str]:
        """A usage example and the limits of the model, for its card."""
        shape = [self.form.height, self.form.width, self.form.channels]
        usage = (
            f'import numpy\n\nclassifier = heedful.load("{folder}")\n'
            f'image = numpy.zeros({shape}, "uint8")  # or the path of a file\nclassifier.predict([image])'
        )
        size = f"Images are {self.form.width} pixels wide and {self.form.height} high, with {self.form.channels} channels"
        return usage, f"{size}, and only the labels of the training data are predicted."


def resolve(run: RunConfig) -> dict[str, object]:
    """The labels of the training data, where task.labels is "auto"."""
    config: ImageClassificationConfig = run.task
    if config.labels != "auto":
        return {}
    data = ImageData(run)
    labels = data.collect_labels()
    if len(labels) < 2:
        store = data.splits.store("train")
        assert store is not None, "a run has training data"
        data.splits.refuse_unusable(store)
        found = f"{data.splits.title('train')} has usable images of {len(labels)} label{'s' * (len(labels) != 1)}"
        raise DataError(f"{found}; expected two or more")
    return {"task.labels": labels}


def format_examples(examples: Iterable[Any]) -> ExampleFile:
    """(label, image) tuples as lines of CSV; an image is a path or an array of bytes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["label", "path"])
    for number, example in enumerate(examples, start=1):
        pair = list(example) if isinstance(example, tuple | list) else []
        if len(pair) != 2 or not isinstance(pair[0], str) or not pair[0].strip():
            raise DataError(
                f"example {number} is {example!r:.60}; expected a tuple (label, image), the image a path or an array"
            )
        writer.writerow([pair[0], input_of(pair[1], number)])
    return ExampleFile(".csv", text.getvalue(), "file", data={"path": "path", "label": "label"})
