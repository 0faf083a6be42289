"""Texts with labels, a table a split: [data] with form = "labeled".

folder = "sst2"        train.tsv, valid.tsv and test.tsv there, plain or .gz; columns are apart by tabs
label = 1              the column of the label
texts = [2]            those of the texts: one, or the two that are compared, or a beginning and its endings
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from heedful.data.sources import ALIASES, find_folder, find_path, missing_split
from heedful.errors import DataError
from heedful.schema import Config, Count, Problem, Size, ZeroOrCount, ZeroOrSmallCount, refuse
from heedful.storage.reading import decode_training_line, read_lines

LABEL_COLUMN = re.compile("labels?|class|category|target|sentiment|gold_label|score|rating|y|text|sentence|sentence1|premise")


class LabeledConfig(Config):
    form: Literal["labeled"]
    """Form of the data: texts with labels."""
    folder: str | None = None
    """A folder with train.tsv, valid.tsv and test.tsv, plain or .gz."""
    train: str | None = None
    """The training file, instead of the folder's."""
    valid: str | None = None
    """The validation file, instead of the folder's."""
    test: str | None = None
    """The test file, instead of the folder's."""
    header: bool | None = None
    """Whether line 1 of each file names the columns; default: refused if it looks so."""
    label: Size = 1
    """Column of the label, counted from 1."""
    texts: Annotated[tuple[Size, ...], Field(min_length=1)] = (2,)
    """Columns of the texts, counted from 1."""
    limit: ZeroOrCount = 0
    """Train on this many examples only, drawn at random; 0: all."""
    max_length: Size = 256
    """Maximum tokens per sequence; longer ones are truncated."""
    batch: Count = 32
    """Examples per batch."""
    pad_to_multiple_of: Size = 1
    """Pad lengths to a multiple of this, so that few shapes occur."""
    prefetch: ZeroOrSmallCount = 4
    """Batches prepared ahead in the background; 0: none."""

    @model_validator(mode="after")
    def _fits_together(self) -> LabeledConfig:
        problems = []
        if self.folder is None:
            missing = [split for split in ("train", "valid") if getattr(self, split) is None]
            problems = [Problem(split, "missing; expected a file, or data.folder") for split in missing]
        if self.label in self.texts:
            problems.append(Problem("texts", f"given {list(self.texts)!r}, which holds the column of the label"))
        refuse(problems)
        return self

    @property
    def sides(self) -> tuple[int, int]:
        return 0, self.max_length


class Example(NamedTuple):
    label: str
    texts: tuple[str, ...]


def file_of(data: LabeledConfig, split: str) -> Path | None:
    """Where a split is; None where there is no such test set."""
    named: str | None = getattr(data, split)
    if named is not None:
        return find_path(named)
    if data.folder is None:
        return None
    folder = find_folder(data.folder)
    names = [f"{name}.tsv{packed}" for name in ALIASES[split] for packed in ("", ".gz")]
    found = next((folder / name for name in names if (folder / name).is_file()), None)
    if found is None and split != "test":
        raise missing_split(folder, f"{split}.tsv")
    return found


def examples_in(data: LabeledConfig, path: Path) -> list[Example]:
    found = []
    for number, line in enumerate(read_lines(path), start=1):
        cells = decode_training_line(line, path, number).split("\t")
        most = max(data.label, *data.texts)
        if len(cells) < most:
            has = f"{len(cells)} column{'s' * (len(cells) != 1)}"
            raise DataError(f"{path} line {number} has {has}, expected at least {most}, separated by tabs")
        empty = next((column for column in (data.label, *data.texts) if not cells[column - 1].strip()), None)
        if empty is not None:
            what = "label" if empty == data.label else "text"
            raise DataError(
                f"{path} line {number}: column {empty} is empty, expected a {what}", hint="remove the line, or fill it in"
            )
        found.append(Example(cells[data.label - 1], tuple(cells[column - 1] for column in data.texts)))
    if data.header is None:
        refuse_header(path, found)
    return found[1:] if data.header else found


def refuse_header(path: Path, found: Sequence[Example]) -> None:
    """A first line is taken for a header if its label has the name of a column, or is the only one that occurs once."""
    first, counts = found[0].label, Counter(one.label for one in found)
    alone = counts[first] == 1 and len(counts) > 2 and all(count > 1 for label, count in counts.items() if label != first)
    if alone or (counts[first] == 1 and LABEL_COLUMN.fullmatch(first.strip().lower())):
        raise DataError(
            f"{path} line 1 looks like the names of columns: its label is {first!r:.40}, which no other line has",
            hint="data.header = true skips that line; data.header = false trains on it",
        )
