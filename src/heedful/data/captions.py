"""Images with captions: [data] with form = "captions".

    train = { file = "train.csv" }          .csv, .tsv or .jsonl with the columns path and caption
    train = { folder = "pictures" }         the caption of pictures/1.png is in pictures/1.txt
    split = [0.8, 0.1, 0.1]                 only train is given; equal images stay in one part

    folder = "pictures"                     with folders train, valid and test, as above
    builtin = "shapes"                      generated images (`shape_scenes.py`), as many as `counts` says

Paths in a file are relative to its folder; a path may also be a data URI. An image with several captions has a row for each.
What cannot be used is listed and left out; more than `data.max_unusable` are an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import model_validator

from heedful.config.base import Config, Count, PathName, Problem, Size, ZeroOrCount, ZeroOrSmallCount, refuse
from heedful.data.augment import AugmentConfig
from heedful.data.fractions import Fractions, makes_part
from heedful.data.image_files import SUFFIXES, ImageFormat
from heedful.data.images import REPLACE_TABLE, ImageReader, LabeledImage, TableReader, UnusableItem, read_image, split_problems
from heedful.data.rows import format_of
from heedful.data.sources import ALIASES, ColumnName, find_folder, find_path
from heedful.data.splits import Counts
from heedful.data.unusable import MAX_UNUSABLE, LineProblem, Share, usable_text
from heedful.errors import DataError, MissingFile
from heedful.storage.reading import read_bytes, reason_of


class CaptionTable(Config):
    """A file of paths and captions, or a folder of images with their captions."""

    folder: PathName | None = None
    """Folder of images, each with its caption in a text file of the same name: 1.png and 1.txt."""
    file: PathName | None = None
    """File of paths and captions, .csv, .tsv or .jsonl, plain or .gz."""

    @model_validator(mode="after")
    def _one_source(self) -> CaptionTable:
        problems = []
        if (self.folder is None) == (self.file is None):
            given = "neither" if self.file is None else "both"
            fix = f"; {REPLACE_TABLE}" if self.file is not None else ""
            problems.append(Problem("", f"given {given} of folder and file; expected one of them{fix}"))
        if self.file is not None and format_of(self.file) is None:
            problems.append(Problem("file", f"given {self.file!r}, expected a name that ends in .csv, .tsv or .jsonl"))
        refuse(problems)
        return self


class CaptionsConfig(Config):
    form: Literal["captions"]
    """Form of the data: images with captions."""
    folder: PathName | None = None
    """Folder with folders train, valid and test, each with images and their captions."""
    builtin: Literal["shapes"] | None = None
    """Generate images of shapes and their captions."""
    counts: Counts | None = None
    """Number of images of each split that are generated."""
    train: CaptionTable | None = None
    """Training images, instead of the folder's."""
    valid: CaptionTable | None = None
    """Validation images, instead of the folder's."""
    test: CaptionTable | None = None
    """Test images, instead of the folder's."""
    split: Fractions | None = None
    """Split the training images into train, valid and test: three fractions; equal images stay together. Default: no split."""
    path: ColumnName = "path"
    """Column of the path of the image, in files of paths."""
    caption: ColumnName = "caption"
    """Column of the caption, in files of paths."""
    resize: bool = False
    """Resize images of another size; default: they are unusable."""
    convert_channels: bool = False
    """Convert grayscale to color, color to grayscale, and drop transparency; default: such images are unusable."""
    augment: AugmentConfig = AugmentConfig()
    """Random changes of training images; their captions stay the same."""
    max_unusable: Share = MAX_UNUSABLE
    """Maximum fraction of unusable images; more stop the run; 1: any number."""
    limit: ZeroOrCount = 0
    """Train on this many randomly sampled images only; 0: all."""
    max_length: Size = 64
    """Maximum tokens of a caption, without the end token; images with longer ones are left out of training."""
    batch: Count = 64
    """Images per batch."""
    pad_to_multiple_of: Size | Literal["auto"] = "auto"
    """Pad lengths to a multiple of this, so that few shapes occur; 1: no extra padding; auto: 16 with CUDA graphs, else 1."""
    prefetch: ZeroOrSmallCount = 4
    """Batches prepared ahead in the background; 0: none."""

    @model_validator(mode="after")
    def _fits_together(self) -> CaptionsConfig:
        refuse(split_problems(self, "a table with a file or a folder", "caption"))
        return self

    def makes(self, split: str) -> bool:
        """Whether `data.split` makes this part, and others."""
        return makes_part(self.split, split)

    @property
    def sides(self) -> tuple[int, int]:
        """Maximum tokens of source and target: an image has none; the start token counts."""
        return 0, self.max_length + 1

    @property
    def length_multiple(self) -> int:
        """`pad_to_multiple_of` as a number: 1 as long as "auto" is not resolved."""
        return 1 if self.pad_to_multiple_of == "auto" else self.pad_to_multiple_of


class CaptionFolder(NamedTuple):
    """A folder of images, each with a text file of the same name."""

    path: Path

    @property
    def title(self) -> str:
        return str(self.path)

    def images_of_folder(self) -> list[Path]:
        found = sorted(entry for entry in self.path.iterdir() if entry.suffix.lower() in SUFFIXES)
        if not found:
            hint = f"put images and their captions into it: {self.path / '1.png'} and {self.path / '1.txt'}"
            raise DataError(f"{self.path} has no images; expected files that end in {', '.join(SUFFIXES)}", hint=hint)
        return found

    def files(self) -> list[Path]:
        images = self.images_of_folder()
        return [*images, *(text for image in images if (text := image.with_suffix(".txt")).is_file())]

    def images(self, form: ImageFormat) -> Iterator[LabeledImage | UnusableItem]:
        for file in self.images_of_folder():
            caption = read_caption(file.with_suffix(".txt"), file)
            yield caption if isinstance(caption, UnusableItem) else read_image(file, str(file), caption, form)


def read_caption(path: Path, image: Path) -> str | UnusableItem:
    """The text of a file in one line."""
    try:
        text = usable_text(b" ".join(read_bytes(path).split()), 1)
    except FileNotFoundError:
        return UnusableItem("blank", str(image), f"the caption is missing; expected it in {path.name}")
    except OSError as error:
        return UnusableItem("blank", str(path), f"the caption cannot be read: {reason_of(error)}")
    if isinstance(text, LineProblem):
        return UnusableItem(text.kind, str(path), text.text)
    return text or UnusableItem("blank", str(path), "the caption is empty; expected at least one word")


def find_reader(data: CaptionsConfig, split: str) -> ImageReader | None:
    """The images that a split is, or that it is a part of; None if there is no test set. Not for generated images."""
    origin = "train" if data.makes(split) else split
    table: CaptionTable | None = getattr(data, origin)
    if table is not None:
        return reader_of(table, data)
    if (data.train is not None and split == "test") or data.folder is None:
        return None  # the test set of a folder belongs to other training data
    folder = find_folder(data.folder)
    for name in ALIASES[origin]:
        if (folder / name).is_dir():
            return CaptionFolder(folder / name)
    if split == "test":
        return None
    hint = "set data.split to make it a part of train" if split == "valid" else "give another path in [data.train]"
    raise DataError(f"{folder} has no folder {origin!r}", hint=hint)


def reader_of(table: CaptionTable, data: CaptionsConfig) -> ImageReader:
    if table.folder is not None:
        return CaptionFolder(find_folder(table.folder))
    assert table.file is not None, "checked by the config"
    path = find_path(table.file)
    if not path.exists():
        raise MissingFile(f"there is no file {str(path)!r}", path)
    return TableReader(path, format_of(table.file) or "csv", (data.path, data.caption), "caption")
