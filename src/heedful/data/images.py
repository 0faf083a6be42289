"""Labeled images: [data] with form = "images".

    train = { folder = "flowers" }                       a folder for each label: flowers/rose/1.png
    train = { file = "train.csv" }                       .csv, .tsv or .jsonl with the columns path and label
    train = { images = "i.idx3.gz", labels = "l.idx1.gz" }   IDX files, plain or .gz
    split = [0.8, 0.1, 0.1]                              only train is given; equal images stay in one part

    folder = "flowers"                                   with folders train, valid and test, or the IDX files of MNIST
    builtin = "shapes"                                   generated images (`shapes.py`), as many as `counts` says

Paths in a file are relative to its folder; a path may also be a data URI. Images have the size and the channels of the model.
Those that cannot be used are listed and left out; more than `data.max_unusable` are an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from heedful.config.base import Config, Count, PathName, Problem, ZeroOrCount, ZeroOrSmallCount, refuse, unused
from heedful.data.augment import LabeledAugmentConfig
from heedful.data.fractions import Fractions, SplitPart, fraction_problems, makes_part
from heedful.data.hash_split import part_of
from heedful.data.image_files import (
    SUFFIXES,
    ImageFormat,
    Pixels,
    UnusableImage,
    data_uri_bytes,
    decode_image,
    fit_array,
    is_data_uri,
    read_idx,
)
from heedful.data.rows import READERS, Format, format_of
from heedful.data.sources import ALIASES, ColumnName, find_folder, find_path
from heedful.data.splits import Counts, builtin_problems
from heedful.data.unusable import MAX_UNUSABLE, LineProblem, Share
from heedful.errors import DataError, MissingFile
from heedful.storage.reading import read_bytes, reason_of

IDX_NAMES = {"train": "train", "test": "t10k"}  # of the files of MNIST and Fashion-MNIST, by split


REPLACE_TABLE = """one of them may come from the recipe: replace the whole table, such as data.train='{file="paths.csv"}'"""


class ImageTable(Config):
    """A folder of images, a file of paths, or a pair of IDX files."""

    folder: PathName | None = None
    """Folder with a folder of images for each label."""
    file: PathName | None = None
    """File of paths and labels, .csv, .tsv or .jsonl, plain or .gz."""
    images: PathName | None = None
    """IDX file of images, plain or .gz."""
    labels: PathName | None = None
    """IDX file of the labels of `images`, plain or .gz."""

    @model_validator(mode="after")
    def _one_source(self) -> ImageTable:
        problems = []
        given = [name for name in ("folder", "file", "images") if getattr(self, name) is not None]
        if len(given) != 1:
            names = " and ".join(given) or "none of them"
            fix = f"; {REPLACE_TABLE}" if given else ""
            problems.append(Problem("", f"given {names}; expected one of folder, file or images{fix}"))
        if (self.images is None) != (self.labels is None):
            problems.append(Problem("", "given one of images and labels; expected both IDX files"))
        if self.file is not None and format_of(self.file) is None:
            problems.append(Problem("file", f"given {self.file!r}, expected a name that ends in .csv, .tsv or .jsonl"))
        refuse(problems)
        return self


def split_problems(data: Any, expected: str, column: str) -> list[Problem]:
    """Problems of the options of [data] that make splits of images. expected: what data.train may be; column: the column of a
    file of paths besides the path."""
    problems = builtin_problems(data)
    if data.folder is None and data.builtin is None:
        missing = [name for name in ("train", "valid") if getattr(data, name) is None and not data.makes(name)]
        problems += [Problem(name, f"missing; expected {expected}, data.folder or data.builtin") for name in missing]
    no_effect = {}
    if data.train and (data.valid or data.split):
        no_effect["folder"] = f"data.train and {'data.valid are' if data.valid else 'data.split are'} given"
    if data.split is not None:
        problems += [Problem("split", sentence) for sentence in fraction_problems(data.split)]
        made = [name for name in ("valid", "test") if data.makes(name)]
        no_effect |= {name: f"data.split makes a {name} part of the training images" for name in made}
        if data.builtin and data.train is None:
            problems.append(Problem("split", "given with data.builtin, which has splits of its own"))
    if not any(table is not None and table.file for table in (data.train, data.valid, data.test)):
        no_effect |= dict.fromkeys(("path", column), "no split is a file of paths")
    return [*problems, *unused(data, no_effect)]


class ImagesConfig(Config):
    form: Literal["images"]
    """Form of the data: images with labels."""
    folder: PathName | None = None
    """Folder with folders train, valid and test, each with a folder for each label; or with the IDX files of MNIST."""
    builtin: Literal["shapes"] | None = None
    """Generate images of shapes."""
    counts: Counts | None = None
    """Number of images of each split that are generated."""
    train: ImageTable | None = None
    """Training images, instead of the folder's."""
    valid: ImageTable | None = None
    """Validation images, instead of the folder's."""
    test: ImageTable | None = None
    """Test images, instead of the folder's."""
    split: Fractions | None = None
    """Split the training images into train, valid and test: three fractions; equal images stay together. Default: no split."""
    path: ColumnName = "path"
    """Column of the path of the image, in files of paths."""
    label: ColumnName = "label"
    """Column of the label, in files of paths."""
    class_names: tuple[str, ...] | None = None
    """Names of the labels 0, 1, … of IDX files; default: the numbers."""
    resize: bool = False
    """Resize images of another size; default: they are unusable."""
    convert_channels: bool = False
    """Convert grayscale to color, color to grayscale, and drop transparency; default: such images are unusable."""
    augment: LabeledAugmentConfig = LabeledAugmentConfig()
    """Random changes of training images."""
    max_unusable: Share = MAX_UNUSABLE
    """Maximum fraction of unusable images; more stop the run; 1: any number."""
    limit: ZeroOrCount = 0
    """Train on this many randomly sampled images only; 0: all."""
    batch: Count = 64
    """Images per batch."""
    prefetch: ZeroOrSmallCount = 4
    """Batches prepared ahead in the background; 0: none."""

    @model_validator(mode="after")
    def _fits_together(self) -> ImagesConfig:
        refuse(split_problems(self, "a table with a folder or files", "label"))
        return self

    def makes(self, split: str) -> bool:
        """Whether `data.split` makes this part, and others."""
        return makes_part(self.split, split)

    @property
    def max_length(self) -> int:
        """Tokens of a text: an image has none."""
        return 1

    @property
    def sides(self) -> tuple[int, int]:
        return 0, self.max_length


class UnusableItem(NamedTuple):
    """An image that cannot be used."""

    kind: str  # a key of `report.NAMES`
    place: str
    text: str


class LabeledImage(NamedTuple):
    place: str
    label: str
    pixels: Pixels


class ImageReader(Protocol):
    """The images of a split."""

    @property
    def title(self) -> str:
        """Its path, for messages."""

    def files(self) -> list[Path]:
        """Every file that it reads; a file of paths first."""

    def images(self, form: ImageFormat) -> Iterator[LabeledImage | UnusableItem]:
        """Decode them in order."""


def read_image(path: Path | str, place: str, label: str, form: ImageFormat) -> LabeledImage | UnusableItem:
    """Decode a file, or a data URI; place: of it, for messages."""
    try:
        raw = data_uri_bytes(path) if isinstance(path, str) else read_bytes(path)
        return LabeledImage(place, label, decode_image(raw, form))
    except OSError as error:
        return UnusableItem("image", place, f"it cannot be read: {reason_of(error)}")
    except UnusableImage as error:
        return UnusableItem(error.kind, place, f"it {error}")


class FolderReader(NamedTuple):
    """A folder for each label."""

    path: Path

    @property
    def title(self) -> str:
        return str(self.path)

    def labels(self) -> list[str]:
        labels = sorted(entry.name for entry in self.path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
        if not labels:
            raise DataError(
                f"{self.path} has no folders; expected one for each label", hint="put the images of a label into a folder: "
                f"{self.path / 'rose' / '1.png'}"
            )  # fmt: skip
        return labels

    def files(self) -> list[Path]:
        found = []
        for label in self.labels():
            files = sorted(entry for entry in (self.path / label).iterdir() if not entry.name.startswith("."))
            if not files:
                raise DataError(f"{self.path / label} is empty; expected the images of the label {label!r}")
            found += files
        return found

    def images(self, form: ImageFormat) -> Iterator[LabeledImage | UnusableItem]:
        for file in self.files():
            if file.suffix.lower() in SUFFIXES:
                yield read_image(file, str(file), file.parent.name, form)
            else:
                expected = ", ".join(SUFFIXES)
                yield UnusableItem("image", str(file), f"the suffix is {file.suffix!r}; expected one of {expected}")


class TableReader(NamedTuple):
    """A file of paths and labels, or of paths and captions."""

    path: Path
    format: Format
    columns: tuple[str, str]  # path, label
    second: str = "label"  # what the second column has, and the option that names it

    @property
    def title(self) -> str:
        return str(self.path)

    def rows(self) -> Iterator[tuple[int, list[Any] | LineProblem]]:
        return READERS[self.format](self.path, self.columns, f"data.path and data.{self.second}")

    def find(self, name: str) -> Path:
        """An image, relative to the folder of the file."""
        return self.path.parent / Path(name).expanduser()

    def files(self) -> list[Path]:
        if not self.path.exists():
            return [self.path]
        named = (row[0] for _, row in self.rows() if not isinstance(row, LineProblem) and isinstance(row[0], str))
        found = (self.find(name) for name in named if not is_data_uri(name))
        return [self.path, *dict.fromkeys(file for file in found if file.is_file())]

    def images(self, form: ImageFormat) -> Iterator[LabeledImage | UnusableItem]:
        for line, row in self.rows():
            place = f"{self.path} line {line}"
            if isinstance(row, LineProblem):
                yield UnusableItem(row.kind, place, row.text)
                continue
            name, label = (value if isinstance(value, str) else "" if value is None else str(value) for value in row)
            if not name.strip() or not label.strip():
                empty = self.columns[0] if not name.strip() else self.columns[1]
                yield UnusableItem("blank", place, f"column {empty!r} is empty; expected a path and a {self.second}")
                continue
            if is_data_uri(name):
                yield read_image(name, place, label, form)
            else:
                yield read_image(self.find(name), f"{place}, {name}", label, form)


class IdxReader(NamedTuple):
    """A pair of IDX files."""

    path: Path
    labels: Path
    names: tuple[str, ...] | None

    @property
    def title(self) -> str:
        return str(self.path)

    def files(self) -> list[Path]:
        return [self.path, self.labels]

    def images(self, form: ImageFormat) -> Iterator[LabeledImage | UnusableItem]:
        images, labels = read_idx(self.path, 3), read_idx(self.labels, 1)
        if len(images) != len(labels):
            raise DataError(f"{self.path} has {len(images):,} images, but {self.labels} has {len(labels):,} labels")
        highest = int(labels.max(initial=0))
        if self.names is not None and highest >= len(self.names):
            raise DataError(f"{self.labels} has the label {highest}, but data.class_names has {len(self.names)} names")
        for number, (image, label) in enumerate(zip(images, labels.tolist(), strict=True), start=1):
            place = f"{self.path} image {number}"
            try:
                yield LabeledImage(place, self.names[label] if self.names else str(label), fit_array(image, form))
            except UnusableImage as error:
                yield UnusableItem(error.kind, place, f"it {error}")


def find_reader(data: ImagesConfig, split: str) -> ImageReader | None:
    """The images that a split is, or that it is a part of; None if there is no test set. Not for generated images."""
    origin = "train" if data.makes(split) else split
    table: ImageTable | None = getattr(data, origin)
    if table is not None:
        return reader_of(table, data)
    if (data.train is not None and split == "test") or data.folder is None:
        return None  # the test set of a folder belongs to other training data
    folder = find_folder(data.folder)
    for name in ALIASES[origin]:
        if (folder / name).is_dir():
            return FolderReader(folder / name)
    pair = [find_idx(folder, origin, kind) for kind in ("images-idx3", "labels-idx1")]
    if pair[0] is not None and pair[1] is not None:
        return IdxReader(pair[0], pair[1], data.class_names)
    if split == "test":
        return None
    hint = "set data.split to make it a part of train" if split == "valid" else "give another path in [data.train]"
    raise DataError(f"{folder} has no folder {origin!r} and no IDX files of {origin}", hint=hint)


def find_idx(folder: Path, split: str, kind: str) -> Path | None:
    names = [f"{IDX_NAMES.get(split, split)}-{kind}-ubyte{packed}" for packed in ("", ".gz")]
    return next((folder / name for name in names if (folder / name).is_file()), None)


def reader_of(table: ImageTable, data: ImagesConfig) -> ImageReader:
    if table.folder is not None:
        return FolderReader(find_folder(table.folder))
    if table.images is not None and table.labels is not None:
        return IdxReader(find_path(table.images), find_path(table.labels), data.class_names)
    assert table.file is not None, "checked by the config"
    path = find_path(table.file)
    if not path.exists():
        raise MissingFile(f"there is no file {str(path)!r}", path)
    return TableReader(path, format_of(table.file) or "csv", (data.path, data.label))


def rows_of_part(pixels: Pixels, part: SplitPart) -> NDArray[np.int64]:
    """The rows of images (images, height, width, channels) that belong to a part, by a hash of their pixels."""
    names = [part_of(sha256(image.tobytes()).hexdigest(), part.fractions) for image in pixels]
    return np.flatnonzero(np.array([name == part.name for name in names], bool))
