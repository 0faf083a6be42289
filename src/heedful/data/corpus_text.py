"""Plain text, line by line, for language models: [data] with form = "text". `text_store.py` encodes it.

    folder = "wikitext2"             file = "shakespeare/input.txt.gz"        [[data.train]]
    (train.txt, valid.txt and        held_out = 0.1                           file = "books.txt"
    test.txt in it, plain or .gz)    (its last tenth is for validation)       [[data.train]]
                                                                              file = "imdb/train.tsv"
                                                                              column = 2
                                                                              [data.valid]
                                                                              dataset = "wikitext"
                                                                              column = "text"

With `split = [0.9, 0.05, 0.05]`, `file` or a single `train` is split into train, valid and test by a hash, with near-duplicates
kept together (`hash_split.py`). What is assigned as a whole, with the empty lines after it:

    rows          of a table, or of a column of a tab-separated file
    paragraphs    of a text file with empty lines: the lines between them
    lines         of a text file without empty lines
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from heedful.config.base import Config, Count, PathName, Probability, Problem, Size, ZeroOrSmallCount, refuse, unused
from heedful.data.fractions import PARTS, Fractions, SplitPart, fraction_problems, makes_part
from heedful.data.hash_split import select_part
from heedful.data.report import CorpusCheck
from heedful.data.sources import (
    ALIASES,
    ColumnName,
    CorpusWeight,
    Temperature,
    find_folder,
    find_path,
    find_table,
    missing_split,
    mixing_problems,
)
from heedful.data.tables import read_rows
from heedful.data.unusable import MAX_UNUSABLE, LineProblem, Share, UnusableLines, usable_text
from heedful.errors import DataError
from heedful.storage.reading import read_lines

TEXT_COLUMN = re.compile("text|sentence|review|content|comment|document|body|title|tweet")


class TextFile(Config):
    """A text file, plain or .gz, one column of a tab-separated file, or one column of a table."""

    file: PathName | None = None
    """Text file, plain or .gz."""
    parquet: PathName | None = None
    """Parquet file, a folder of them, or a pattern: `data/train-*.parquet`."""
    dataset: PathName | None = None
    """Folder of a Hugging Face dataset: written by `save_to_disk`, or with Parquet files named after their splits."""
    split: str | None = None
    """Split of the dataset; default: that of the table, such as valid in [data.valid]."""
    column: Size | ColumnName | None = None
    """Column to read: a number, counted from 1, in a tab-separated file (default: entire lines); a name in a table."""
    header: bool | None = None
    """Whether line 1 is a header and is skipped; default: an error if it looks like one."""
    weight: CorpusWeight = 1.0
    """Number of passes over this corpus per epoch."""

    @model_validator(mode="after")
    def _one_source_and_its_options(self) -> TextFile:
        given = [name for name in ("file", "parquet", "dataset") if getattr(self, name) is not None]
        problems = []
        if len(given) != 1:
            names = " and ".join(given) or "none of them"
            problems.append(Problem("", f"given {names}; expected one of file, parquet or dataset"))
        elif given == ["file"] and isinstance(self.column, str):
            problems.append(Problem("column", f"given {self.column!r}, expected a number, counted from 1, with file"))
        elif given != ["file"] and not isinstance(self.column, str):
            kind = "nothing" if self.column is None else self.column
            problems.append(Problem("column", f"given {kind}, expected the name of a column, with {given[0]}"))
        if self.split is not None and self.dataset is None:
            problems.append(Problem("split", "would have no effect without dataset"))
        if self.header is not None and not isinstance(self.column, int):
            problems.append(Problem("header", "would have no effect without column"))
        refuse(problems)
        return self


def as_list(value: Any) -> Any:
    return [TextFile.model_validate(value)] if isinstance(value, Mapping | TextFile) else value


def unwrap_single(files: tuple[TextFile, ...]) -> Any:
    tables = [file.model_dump(exclude_none=True) for file in files]
    return tables[0] if len(tables) == 1 else tables


TextFiles = Annotated[tuple[TextFile, ...], Field(min_length=1), BeforeValidator(as_list), PlainSerializer(unwrap_single)]


class TextConfig(Config):
    """The text files, and how they are cut into training sequences."""

    form: Literal["text"]
    """Form of the data: plain text."""
    train: TextFiles | None = None
    """Training files, instead of `folder` or `file`."""
    valid: TextFiles | None = None
    """Validation files; required with `train`."""
    test: TextFiles | None = None
    """Test files."""
    folder: PathName | None = None
    """Folder with train.txt, valid.txt and test.txt, plain or .gz."""
    file: PathName | None = None
    """One text file for training and validation."""
    split: Fractions | None = None
    """Split `file` or `train` into train, valid and test by paragraphs, lines or rows: three fractions; near-duplicates stay
    together. Default: no split."""
    held_out: Probability = 0.1
    """Fraction of `file`, at its end, that is used for validation."""
    max_unusable: Share = MAX_UNUSABLE
    """Maximum fraction of unusable lines in a file; more stop the run; 1: any number."""
    temperature: Temperature = 1.0
    """Share of a corpus of train in an epoch: (weight x blocks)^(1 / temperature); 1: by size; more: closer to equal shares."""
    block: Size = 256
    """Tokens per training sequence."""
    batch: Count = 64
    """Sequences per batch."""
    max_store_megabytes: Count | None = None
    """Maximum size of the encoded training data on disk; parts are encoded ahead of use and removed. Default: no limit."""
    prefetch: ZeroOrSmallCount = 4
    """Batches prepared ahead in the background; 0: none."""

    @model_validator(mode="after")
    def _fits_together(self) -> TextConfig:
        ways = {"folder": self.folder, "file": self.file, "train": self.train}
        given = [name for name, value in ways.items() if value]
        problems = []
        if len(given) != 1 and not self.train:
            names = " and ".join(given) or "none of them"
            problems.append(Problem("", f"given {names}; expected one of folder, file or train with valid"))
        elif self.train and not self.valid and not self.makes("valid"):
            problems.append(Problem("valid", "missing; expected a table with a file, or data.split"))
        no_effect: dict[str, str] = {}
        if self.train:
            no_effect |= dict.fromkeys(("folder", "file"), "data.train is given")
        else:
            no_effect |= dict.fromkeys(("valid", "test"), "data.train is not given")
        if self.train or not self.file:
            no_effect["held_out"] = "data.train is given" if self.train else "data.file is not given"
        elif self.split:
            no_effect["held_out"] = "data.split is given"
        made = {name: f"data.split makes a {name} part of data.train" for name in ("valid", "test") if self.makes(name)}
        tables = {name: getattr(self, name) for name in PARTS}
        problems += [Problem("", sentence) for sentence in mixing_problems(tables, self.temperature)]
        refuse([*problems, *self._split_problems(), *unused(self, no_effect | made)])
        return self

    def _split_problems(self) -> list[Problem]:
        if self.split is None:
            return []
        problems = [Problem("split", sentence) for sentence in fraction_problems(self.split)]
        if self.folder and any(map(self.makes, PARTS)):
            problems.append(Problem("split", 'given with data.folder, expected data.file or data.train: { file = "…" }'))
        if self.train is not None and len(self.train) > 1 and any(map(self.makes, PARTS)):
            problems.append(Problem("split", f"given with {len(self.train)} files in data.train, expected one"))
        if self.file and not self.train and not self.makes("valid") and not problems:
            sentence = f"given {list(self.split)}, which leaves nothing to validate on; expected a second fraction > 0"
            problems.append(Problem("split", sentence))
        return problems

    def makes(self, split: str) -> bool:
        """Whether `data.split` makes this part, and others."""
        return makes_part(self.split, split)

    @property
    def weights(self) -> tuple[float, ...]:
        """The weight of each training corpus."""
        return tuple(file.weight for file in self.train) if self.train else (1.0,)

    @property
    def is_mixed(self) -> bool:
        """Whether an epoch draws from each training corpus by itself; otherwise they are read as one text."""
        return self.temperature != 1.0 or any(weight != 1.0 for weight in self.weights)

    @property
    def sides(self) -> tuple[int, int]:
        """Maximum tokens of source (none) and target."""
        return 0, self.block

    @property
    def max_length(self) -> int:
        return self.block


class Passage(NamedTuple):
    """A file, a range of its lines, or a part of it."""

    path: Path
    column: int | str | None = None  # a number in a tab-separated file, a name in a table
    part: tuple[float, float] = (0.0, 1.0)  # range of its characters, as fractions; a line belongs to where it starts
    header: bool | None = None
    split: SplitPart | None = None  # of data.split; None: all of it


def passages(data: TextConfig, split: str) -> list[Passage]:
    """Return the files of a split; empty if there is no such split."""
    if data.split is not None and data.makes(split):
        whole = data.train or (TextFile(file=data.file),)
        return [passage_of(file, "train")._replace(split=SplitPart(split, data.split)) for file in whole]
    if data.file is not None and data.split is not None:
        return []
    if data.file is not None:
        parts = {"train": (0.0, 1 - data.held_out), "valid": (1 - data.held_out, 1.0)}
        return [Passage(find_path(data.file), None, parts[split])] if split in parts else []
    if data.folder is not None:
        path = find_split(find_folder(data.folder), split)
        return [] if path is None else [Passage(path)]
    return [passage_of(file, split) for file in getattr(data, split) or ()]


def passage_of(file: TextFile, split: str) -> Passage:
    """All of a file; split: of a dataset, by default."""
    path = find_path(file.file) if file.file is not None else find_table(file.parquet, file.dataset, file.split, split)
    return Passage(path, file.column, header=file.header)


def find_split(folder: Path, split: str) -> Path | None:
    """Return <split>.txt or <split>.txt.gz, under any of the aliases of the split; None if there is no test set."""
    names = [f"{name}.txt{packed}" for name in ALIASES[split] for packed in ("", ".gz")]
    path = next((folder / name for name in names if (folder / name).is_file()), None)
    if path is None and split != "test":
        raise missing_split(folder, f"{split}.txt")
    return path


def read_passage(passage: Passage) -> Iterator[str]:
    """Yield the usable lines."""
    return (line for line in scan_passage(passage) if isinstance(line, str))


def check_passage(split: str, passage: Passage) -> CorpusCheck:
    """Read a passage once and report its unusable lines and the number of characters."""
    is_table = isinstance(passage.column, str)
    unusable = UnusableLines(lambda problem: f"{passage.path} {'row' if is_table else 'line'} {problem.line}")
    lines = characters = 0
    for line in scan_passage(passage):
        if isinstance(line, str):
            lines, characters = lines + 1, characters + len(line) + 1
        else:
            unusable.add(line)
    if not lines + unusable.total:
        if passage.split is not None:
            raise DataError(passage.split.empty(str(passage.path), "line"), hint="use a larger fraction, or more text")
        raise DataError(f"{passage.path} has no line for {split}", hint="change data.held_out")
    return CorpusCheck(
        split=split,
        title=str(passage.path),
        total=lines + unusable.total,
        kept=lines,
        findings=unusable.findings(),
        dropped=np.zeros(0, np.int64),
        conversions=() if is_table else unusable.conversions([passage.path]),
        unit="lines",
        characters=characters,
        remark=f"{characters:,} characters" + ("" if passage.split is None else f", split by {unit_of(passage)}"),
    )


def scan_passage(passage: Passage) -> Iterator[str | LineProblem]:
    """Yield every line of a passage, or why it is unusable; such a line has the length of an empty one."""

    def length(line: str | LineProblem) -> int:
        return len(line) + 1 if isinstance(line, str) else 1

    if passage.split is not None:
        blocks = list(read_blocks(passage))
        texts = ["\n".join(line for line in block if isinstance(line, str)) for block in blocks]
        for block in select_part(blocks, texts, passage.split):
            yield from block
        return
    lines = read_cells(passage)
    begin, end = passage.part
    if (begin, end) == (0.0, 1.0):
        yield from lines
        return
    total = sum(map(length, read_cells(passage)))
    position = 0
    for line in lines:
        if begin * total <= position < end * total:
            yield line
        position += length(line)


def unit_of(passage: Passage) -> str:
    """What `data.split` assigns to a part as a whole."""
    if passage.column is not None:
        return "rows"
    return "paragraphs" if any(isinstance(line, str) and not line.strip() for line in read_cells(passage)) else "lines"


def read_blocks(passage: Passage) -> Iterator[list[str | LineProblem]]:
    """Yield the lines of each unit of `unit_of`, with the empty lines after it."""
    if isinstance(passage.column, str):
        yield from map(list, read_table(passage.path, passage.column))
        return
    if unit_of(passage) != "paragraphs":
        yield from ([line] for line in read_cells(passage))
        return
    block: list[str | LineProblem] = []
    ended = False  # an empty line ended the paragraph
    for line in read_cells(passage):
        is_empty = isinstance(line, str) and not line.strip()
        if ended and not is_empty:
            yield block
            block, ended = [], False
        block.append(line)
        ended = is_empty and any(not isinstance(one, str) or one.strip() for one in block)
    yield block


def read_cells(passage: Passage) -> Iterator[str | LineProblem]:
    """Yield every line, or one column of it."""
    if isinstance(passage.column, str):
        yield from chain.from_iterable(read_table(passage.path, passage.column))
        return
    for number, raw in enumerate(read_lines(passage.path), start=1):
        text = usable_text(raw, number)
        cell = text if isinstance(text, LineProblem) else select_column(text, passage, number)
        if number == 1 and passage.column is not None and passage.header is not False:
            if passage.header:
                continue
            if isinstance(cell, str) and TEXT_COLUMN.fullmatch(cell.strip().lower()):
                raise DataError(
                    f"{passage.path} line 1 looks like a header: column {passage.column} is {cell!r:.40}; expected text",
                    hint="set header = true, next to file and column, to skip that line, or header = false to train on it",
                )
        yield cell


def read_table(path: Path, column: str) -> Iterator[Sequence[str | LineProblem]]:
    """Yield the lines of each row of a column."""
    for row, (cell,) in enumerate(read_rows(path, [column]), start=1):
        if cell is None:
            yield [LineProblem("blank", row, "source", f"column {column!r} is null; expected a text")]
            continue
        text = usable_text(cell, row)
        yield [text] if isinstance(text, LineProblem) else text.split("\n")


def select_column(line: str, passage: Passage, number: int) -> str:
    if not isinstance(passage.column, int):
        return line
    cells = line.split("\t")
    if len(cells) < passage.column:
        given = f"{len(cells)} column{'s' * (len(cells) != 1)}"
        raise DataError(
            f"{passage.path} line {number} has {given}; expected at least {passage.column}, separated by tabs",
            hint="check `column`, which is counted from 1, and the tabs of that line",
        )
    return cells[passage.column - 1]
