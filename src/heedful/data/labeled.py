"""Labeled texts, one table per split: [data] with form = "labeled".

folder = "sst2"        with train.tsv, valid.tsv and test.tsv, plain or .gz; columns are separated by tabs
label = 1              column of the label
texts = [2]            columns of the texts: one, or a pair of texts, or a context and its possible endings

train = { parquet = "train.parquet" }                     Parquet files and datasets have columns with names:
valid = { dataset = "imdb", split = "test" }              label = "label", texts = ["text"]
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from heedful.config.base import Config, Count, Problem, Size, ZeroOrCount, ZeroOrSmallCount, describe_default, refuse
from heedful.data.report import CorpusCheck
from heedful.data.sources import ALIASES, ColumnName, find_folder, find_path, find_table, missing_split
from heedful.data.tables import read_rows
from heedful.data.unusable import MAX_UNUSABLE, LineProblem, Share, UnusableLines, usable_text
from heedful.errors import DataError, nearest
from heedful.storage.reading import read_lines

LABEL_COLUMN = re.compile("labels?|class|category|target|sentiment|gold_label|score|rating|y|text|sentence|sentence1|premise")


class LabeledTable(Config):
    """A table: Parquet files, or a split of a dataset."""

    parquet: str | None = None
    """Parquet file, a folder of them, or a pattern: `data/train-*.parquet`."""
    dataset: str | None = None
    """Folder of a Hugging Face dataset: written by `save_to_disk`, or with Parquet files named after their splits."""
    split: str | None = None
    """Split of the dataset; default: that of the table, such as valid in [data.valid]."""

    @model_validator(mode="after")
    def _one_source(self) -> LabeledTable:
        problems = []
        if (self.parquet is None) == (self.dataset is None):
            names = "none of them" if self.parquet is None else "both"
            problems.append(Problem("", f"given {names}; expected one of parquet or dataset"))
        if self.split is not None and self.dataset is None:
            problems.append(Problem("split", "would have no effect without dataset"))
        refuse(problems)
        return self


class LabeledConfig(Config):
    form: Literal["labeled"]
    """Form of the data: texts with labels."""
    folder: str | None = None
    """Folder with train.tsv, valid.tsv and test.tsv, plain or .gz."""
    train: str | LabeledTable | None = None
    """Training file, instead of the folder's, or a table."""
    valid: str | LabeledTable | None = None
    """Validation file, instead of the folder's, or a table."""
    test: str | LabeledTable | None = None
    """Test file, instead of the folder's, or a table."""
    header: bool | None = None
    """Whether line 1 of each file is a header and is skipped; default: an error if it looks like one."""
    label: Size | ColumnName = 1
    """Column of the label: a number, counted from 1, in tab-separated files; a name in tables."""
    texts: Annotated[tuple[Size | ColumnName, ...], Field(min_length=1)] = (2,)
    """Columns of the texts: numbers, counted from 1, in tab-separated files; names in tables."""
    max_unusable: Share = MAX_UNUSABLE
    """Maximum fraction of unusable lines in a file; more stop the run; 1: any number."""
    limit: ZeroOrCount = 0
    """Train on this many randomly sampled examples only; 0: all."""
    max_length: Size = 256
    """Maximum tokens per sequence; longer ones are truncated."""
    batch: Count = 32
    """Examples per batch."""
    pad_to_multiple_of: Size | Literal["auto"] = "auto"
    """Pad lengths to a multiple of this, so that few shapes occur; 1: no extra padding; auto: 16 with CUDA graphs, else 1."""
    prefetch: ZeroOrSmallCount = 4
    """Batches prepared ahead in the background; 0: none."""

    @model_validator(mode="after")
    def _fits_together(self) -> LabeledConfig:
        problems = []
        if self.folder is None:
            missing = [split for split in ("train", "valid") if getattr(self, split) is None]
            problems = [Problem(split, "missing; expected a file, or data.folder") for split in missing]
        if self.label in self.texts:
            problems.append(
                Problem("texts", f"given {list(self.texts)!r}, which includes the column of the label, {self.label}")
            )
        problems += self._column_problems()
        refuse(problems)
        return self

    def _column_problems(self) -> list[Problem]:
        """The columns of tables have names, those of tab-separated files numbers."""
        given = {split: getattr(self, split) for split in ("train", "valid", "test")}
        tables = [split for split, source in given.items() if isinstance(source, LabeledTable)]
        files = [split for split, source in given.items() if isinstance(source, str)] + (["folder"] if self.folder else [])
        if tables and files:
            return [Problem(files[0], f"given a tab-separated file, but {tables[0]} is a table; expected one of both for all")]
        expected = "the name of a column" if tables else "a number, counted from 1"
        wrong = [name for name in (self.label, *self.texts) if isinstance(name, str) != bool(tables)]
        problems = []
        if self.label in wrong:
            problems.append(Problem("label", f"given {self.label!r}, expected {expected}"))
        if any(name in wrong for name in self.texts):
            problems.append(Problem("texts", f"given {list(self.texts)!r}, expected {expected} for each text"))
        if tables and self.header is not None:
            problems.append(Problem("header", "would have no effect with tables"))
        return [describe_default(self, problem) for problem in problems]

    @property
    def reads_tables(self) -> bool:
        """Whether the files are tables, whose columns have names."""
        return isinstance(self.label, str)

    @property
    def length_multiple(self) -> int:
        """`pad_to_multiple_of` as a number: 1 as long as "auto" is not resolved."""
        return 1 if self.pad_to_multiple_of == "auto" else self.pad_to_multiple_of

    @property
    def sides(self) -> tuple[int, int]:
        return 0, self.max_length


class Example(NamedTuple):
    label: str
    texts: tuple[str, ...]


def find_split_file(data: LabeledConfig, split: str) -> Path | None:
    """Return the file or table of a split; None if there is no test set."""
    given: str | LabeledTable | None = getattr(data, split)
    if isinstance(given, LabeledTable):
        return find_table(given.parquet, given.dataset, given.split, split)
    if given is not None:
        return find_path(given)
    if data.folder is None:
        return None
    folder = find_folder(data.folder)
    names = [f"{name}.tsv{packed}" for name in ALIASES[split] for packed in ("", ".gz")]
    path = next((folder / name for name in names if (folder / name).is_file()), None)
    if path is None and split != "test":
        raise missing_split(folder, f"{split}.tsv")
    return path


class ExampleLine(NamedTuple):
    line: int  # in its file, counted from 1
    example: Example


class ExamplesFile(NamedTuple):
    """The usable examples of a file, and its unusable lines."""

    lines: list[ExampleLine]
    unusable: UnusableLines


def read_examples(data: LabeledConfig, path: Path, labels: Sequence[str] | None = None) -> list[Example]:
    """Return the usable examples of a file; arguments and errors as in `scan_examples`."""
    return [example for _, example in scan_examples(data, path, labels).lines]


def check_examples(data: LabeledConfig, split: str, path: Path, labels: Sequence[str]) -> CorpusCheck:
    """Read a file once and report its unusable lines and the number of examples of each label."""
    lines, unusable = scan_examples(data, path, labels)
    counts = Counter(example.label for _, example in lines)
    return CorpusCheck(
        split=split,
        title=str(path),
        total=len(lines) + unusable.total,
        kept=len(lines),
        findings=unusable.findings(),
        dropped=np.zeros(0, np.int64),
        conversions=() if data.reads_tables else unusable.conversions([path]),
        unit="examples",
        remark=", ".join(f"{label}: {counts[label]:,}" for label in labels),
    )


def scan_examples(data: LabeledConfig, path: Path, labels: Sequence[str] | None = None) -> ExamplesFile:
    """Read a file or table; DataError with file and line if a column is missing, or if a label is not one of `labels`; default:
    any label."""
    read = read_table if data.reads_tables else read_tsv
    place = f"{path} {'row' if data.reads_tables else 'line'}"
    lines, unusable = [], UnusableLines(lambda problem: f"{place} {problem.line}")
    for number, result in read(data, path):
        if isinstance(result, LineProblem):
            unusable.add(result)
        else:
            lines.append(ExampleLine(number, result))
    if data.header is None and not data.reads_tables:
        refuse_header(path, lines)
    if labels is not None:
        refuse_unknown_label(place, lines, labels)
    return ExamplesFile(lines, unusable)


def read_table(data: LabeledConfig, path: Path) -> Iterator[tuple[int, Example | LineProblem]]:
    """Yield the number of each row of a table, and its example or why it is unusable."""
    names = [str(name) for name in (data.label, *data.texts)]
    for row, cells in enumerate(read_rows(path, names[1:], label=names[0]), start=1):
        texts = [usable_text(cell or b"", row) for cell in cells]
        problem = next((text for text in texts if isinstance(text, LineProblem)), None)
        yield row, problem or as_example(names, [str(text) for text in texts], row)


def read_tsv(data: LabeledConfig, path: Path) -> Iterator[tuple[int, Example | LineProblem]]:
    """Yield the number of each line of a tab-separated file without its header, and its example or why it is unusable."""
    for number, raw in enumerate(read_lines(path), start=1):
        if number > 1 or not data.header:
            yield number, parse_line(data, raw, path, number)


def parse_line(data: LabeledConfig, raw: bytes, path: Path, number: int) -> Example | LineProblem:
    """Return the example of a line, or why it is unusable; DataError if it has too few columns."""
    text = usable_text(raw, number)
    if isinstance(text, LineProblem):
        return text
    cells, columns = text.split("\t"), [int(column) for column in (data.label, *data.texts)]
    if len(cells) < max(columns):
        given = f"{len(cells)} column{'s' * (len(cells) != 1)}"
        raise DataError(
            f"{path} line {number} has {given}; expected at least {max(columns)}, separated by tabs",
            hint="check data.label and data.texts, which are counted from 1, and the tabs of that line",
        )
    return as_example(columns, [cells[column - 1] for column in columns], number)


def as_example(columns: Sequence[int | str], cells: Sequence[str], line: int) -> Example | LineProblem:
    """Return the example of these cells, the label first, or the first column that is empty."""
    empty = next((column for column, cell in zip(columns, cells, strict=True) if not cell.strip()), None)
    if empty is not None:
        expected = "label" if empty == columns[0] else "text"
        return LineProblem("blank", line, "source", f"column {empty!r} is empty; expected a {expected}")
    return Example(cells[0], tuple(cells[1:]))


def refuse_unknown_label(place: str, lines: Iterable[ExampleLine], labels: Sequence[str]) -> None:
    """Raise at the first label that is not one of `labels`; place: the file, and "line" or "row"."""
    for number, example in lines:
        if example.label not in labels:
            close = nearest(example.label, labels)
            raise DataError(
                f"{place} {number} has the label {example.label!r:.40}; expected one of: {', '.join(labels)}",
                hint=f"did you mean {close!r}?" if close else "correct the label, or add it to task.labels",
            )


def refuse_header(path: Path, lines: Sequence[ExampleLine]) -> None:
    """Raise if line 1 looks like a header: its label is a column name, or the only label that occurs once."""
    if not lines or lines[0].line != 1:
        return
    first, counts = lines[0].example.label, Counter(example.label for _, example in lines)
    alone = counts[first] == 1 and len(counts) > 2 and all(count > 1 for label, count in counts.items() if label != first)
    if alone or (counts[first] == 1 and LABEL_COLUMN.fullmatch(first.strip().lower())):
        raise DataError(
            f"{path} line 1 looks like a header: its label is {first!r:.40}, which no other line has",
            hint="set data.header = true to skip that line, or data.header = false to train on it",
        )
