"""Labeled texts: [data] with form = "labeled".

    train = { file = "train.csv" }                   .tsv, .csv or .jsonl, plain or .gz (see `rows.py`)
    valid = { parquet = "valid.parquet" }            Parquet files
    test = { dataset = "imdb", split = "test" }      a split of a Hugging Face dataset
    label = "label"                                  column of the label
    texts = ["text"]                                 columns of the texts: one, a pair, or a context and its possible endings
    split = [0.9, 0.05, 0.05]                        only train is given, and split into train, valid and test (`hash_split.py`)

    folder = "sst2"                                  with train.tsv, valid.tsv and test.tsv, plain or .gz
    label = 1                                        tab-separated files without header: columns by number, counted from 1
    texts = [2]

    builtin = "negation"                             examples of a toy (`toys.py`), as many as `counts` says

A text may have several labels: a list in JSONL, or `label_separator = "|"` for a cell such as `red|round`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, cast

import numpy as np
from pydantic import Field, model_validator

from heedful.config.base import (
    Config,
    Count,
    PathName,
    Problem,
    Size,
    ZeroOrCount,
    ZeroOrSmallCount,
    describe_default,
    refuse,
    unused,
)
from heedful.data.fractions import Fractions, SplitPart, fraction_problems, makes_part
from heedful.data.hash_split import select_part
from heedful.data.report import CorpusCheck
from heedful.data.rows import READERS, Format, Row, format_of, shorten_json
from heedful.data.sources import ColumnName, find_folder, find_in_folder, find_path, find_table, missing_split
from heedful.data.splits import Counts, builtin_problems, toy_split
from heedful.data.tables import read_rows
from heedful.data.toys import LABELED, LabeledToy, ToySplit, sample
from heedful.data.unusable import MAX_UNUSABLE, LineProblem, Share, UnusableLines, usable_text
from heedful.errors import DataError, nearest

LABEL_COLUMN = re.compile("labels?|class|category|target|sentiment|gold_label|score|rating|y|text|sentence|sentence1|premise")


class LabeledTable(Config):
    """One file, Parquet files, or a split of a dataset."""

    file: PathName | None = None
    """Text file, .tsv, .csv or .jsonl, plain or .gz."""
    format: Format | None = None
    """Format of `file`; default: by its suffix."""
    parquet: PathName | None = None
    """Parquet file, a folder of them, or a pattern: `data/train-*.parquet`."""
    dataset: PathName | None = None
    """Folder of a Hugging Face dataset: written by `save_to_disk`, or with Parquet files named after their splits."""
    split: str | None = None
    """Split of the dataset; default: that of the table, such as valid in [data.valid]."""

    @model_validator(mode="after")
    def _one_source_and_its_options(self) -> LabeledTable:
        given = [name for name in ("file", "parquet", "dataset") if getattr(self, name) is not None]
        problems = []
        if len(given) != 1:
            names = " and ".join(given) or "none of them"
            problems.append(Problem("", f"given {names}; expected one of file, parquet or dataset"))
        if self.file is not None and self.format is None and format_of(self.file) is None:
            sentence = f"missing; expected tsv, csv or jsonl, because {self.file!r} ends in none of them"
            problems.append(Problem("format", sentence))
        if self.format is not None and self.file is None:
            problems.append(Problem("format", "would have no effect without file"))
        if self.split is not None and self.dataset is None:
            problems.append(Problem("split", "would have no effect without dataset"))
        refuse(problems)
        return self

    @property
    def kind(self) -> Format | Literal["table"]:
        return "table" if self.file is None else self.format or format_of(self.file) or "tsv"


class LabeledConfig(Config):
    form: Literal["labeled"]
    """Form of the data: texts with labels."""
    folder: PathName | None = None
    """Folder with train.tsv, valid.tsv and test.tsv, plain or .gz."""
    builtin: LabeledToy | None = None
    """Generate the examples of this toy."""
    counts: Counts | None = None
    """Number of examples of each split that are generated."""
    train: LabeledTable | None = None
    """Training data, instead of the folder's."""
    valid: LabeledTable | None = None
    """Validation data, instead of the folder's."""
    test: LabeledTable | None = None
    """Test data, instead of the folder's."""
    split: Fractions | None = None
    """Split `train` into train, valid and test: three fractions; near-duplicates stay together. Default: no split."""
    header: bool | None = None
    """Whether line 1 of tab-separated files is a header, so that columns have names; default: an error if it looks like one."""
    label: Size | ColumnName = 1
    """Column of the label: its name; in tab-separated files without header its number, counted from 1."""
    label_separator: Annotated[str, Field(min_length=1)] | None = None
    """Separator of several labels in one cell; default: a cell is one label."""
    texts: Annotated[tuple[Size | ColumnName, ...], Field(min_length=1)] = (2,)
    """Columns of the texts: names; in tab-separated files without header numbers, counted from 1."""
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
        if self.folder is None and self.builtin is None:
            missing = [name for name in ("train", "valid") if getattr(self, name) is None and not self.makes(name)]
            problems = [Problem(name, "missing; expected a table with a file, data.folder or data.builtin") for name in missing]
        problems += builtin_problems(self)
        if self.label in self.texts:
            problems.append(
                Problem("texts", f"given {list(self.texts)!r}, which includes the column of the label, {self.label}")
            )
        problems += [*self._column_problems(), *self._split_problems()]
        refuse(problems)
        return self

    def _split_problems(self) -> list[Problem]:
        no_effect = {}
        if self.train and (self.valid or self.split):
            no_effect["folder"] = f"data.train and {'data.valid are' if self.valid else 'data.split are'} given"
        if self.split is None:
            return unused(self, no_effect)
        no_effect |= {name: f"data.split makes a {name} part of data.train" for name in ("valid", "test") if self.makes(name)}
        problems = [Problem("split", sentence) for sentence in fraction_problems(self.split)]
        if self.train is None and (self.folder or self.builtin):
            given = "data.folder" if self.folder else "data.builtin"
            problems.append(Problem("split", f'given with {given}, expected data.train: {{ file = "…" }}'))
        return [*problems, *unused(self, no_effect)]

    def _column_problems(self) -> list[Problem]:
        """Columns have names, except those of tab-separated files without header, which have numbers."""
        tables = {split: table for split in ("train", "valid", "test") if (table := getattr(self, split)) is not None}
        kinds: dict[str, str] = {split: table.kind for split, table in tables.items()}
        if self.folder is not None:
            kinds["folder"] = "tsv"
        named = [split for split, kind in kinds.items() if kind != "tsv" or self.header]
        numbered = [split for split in kinds if split not in named]
        if named and numbered:
            sentence = f"given a tab-separated file, but {named[0]} has columns with names; expected header = true, or one kind"
            return [Problem(numbered[0], sentence)]
        expected = "the name of a column" if named else "a number, counted from 1"
        wrong = [name for name in (self.label, *self.texts) if isinstance(name, str) != bool(named)]
        problems = []
        if self.label in wrong:
            problems.append(Problem("label", f"given {self.label!r}, expected {expected}"))
        if any(name in wrong for name in self.texts):
            problems.append(Problem("texts", f"given {list(self.texts)!r}, expected {expected} for each text"))
        problems = [describe_default(self, problem) for problem in problems]
        if kinds and "tsv" not in kinds.values():
            problems += unused(self, {"header": "only tab-separated files may lack one"})
        return problems

    def makes(self, split: str) -> bool:
        """Whether `data.split` makes this part, and others."""
        return makes_part(self.split, split)

    @property
    def length_multiple(self) -> int:
        """`pad_to_multiple_of` as a number: 1 as long as "auto" is not resolved."""
        return 1 if self.pad_to_multiple_of == "auto" else self.pad_to_multiple_of

    @property
    def sides(self) -> tuple[int, int]:
        return 0, self.max_length


class Example(NamedTuple):
    labels: tuple[str, ...]
    texts: tuple[str, ...]


class LabeledFile(NamedTuple):
    """The data of a split: a file or table, or a part of one, or a toy."""

    path: Path | ToySplit
    kind: Format | Literal["table"]
    part: str | None = None  # of data.split; None: all of it

    def place(self, line: int) -> str:
        return f"{self.path} {'row' if self.kind == 'table' else 'line'} {line}"


def find_split_file(data: LabeledConfig, split: str) -> LabeledFile | None:
    """Return the file or table of a split; None if there is no test set."""
    part = split if data.makes(split) else None
    given: LabeledTable | None = getattr(data, "train" if part else split)
    if given is not None and given.file is not None:
        return LabeledFile(find_path(given.file), given.kind, part)
    if given is not None:
        return LabeledFile(find_table(given.parquet, given.dataset, given.split, "train" if part else split), "table", part)
    if data.train is not None and split == "test":
        return None  # the test set of a folder or toy belongs to other training data
    if (toy := toy_split(data, split)) is not None:
        return LabeledFile(toy, "table")
    if data.folder is None:
        return None
    folder = find_folder(data.folder)
    path = find_in_folder(folder, split, [".tsv"])
    if path is None and split != "test":
        raise missing_split(folder, f"{split}.tsv")
    return None if path is None else LabeledFile(path, "tsv")


def file_at(data: LabeledConfig, path: Path) -> LabeledFile:
    """A file that is not part of the config, in a format by its suffix, or else as the training data."""
    named = format_of(path.name)
    if named is None and data.train is not None:
        return LabeledFile(path, data.train.kind)
    return LabeledFile(path, named or "tsv")


class ExampleLine(NamedTuple):
    line: int  # in its file, counted from 1
    example: Example


class ExamplesFile(NamedTuple):
    """The usable examples of a file, and its unusable lines."""

    lines: list[ExampleLine]
    unusable: UnusableLines


def read_examples(
    data: LabeledConfig, file: LabeledFile, labels: Sequence[str] | None = None, *, several: bool = False
) -> list[Example]:
    """Return the usable examples of a file; arguments and errors as in `scan_examples`."""
    return [example for _, example in scan_examples(data, file, labels, several=several).lines]


def check_examples(
    data: LabeledConfig, split: str, file: LabeledFile, labels: Sequence[str], *, several: bool = False
) -> CorpusCheck:
    """Read a file once and report its unusable lines and the number of examples of each label.

    The unusable lines of a file that `data.split` splits are reported once, with its training part."""
    lines, unusable = scan_examples(data, file, labels, several=several)
    if file.part in (None, "train"):
        findings, skipped = unusable.findings(), unusable.total
    else:
        findings, skipped = (), 0
    if file.part is not None and not lines:
        raise DataError(
            SplitPart(file.part, data.split or (1.0, 0.0, 0.0)).empty(str(file.path), "example") + unusable.note(),
            hint="use a larger fraction, or more examples",
        )
    counts = Counter(label for _, example in lines for label in example.labels)
    return CorpusCheck(
        split=split,
        title=str(file.path),
        total=len(lines) + skipped,
        kept=len(lines),
        findings=findings,
        dropped=np.zeros(0, np.int64),
        conversions=unusable.conversions([file.path]) if isinstance(file.path, Path) and file.kind != "table" else (),
        unit="examples",
        remark=", ".join(f"{label}: {counts[label]:,}" for label in labels),
    )


def scan_examples(
    data: LabeledConfig, file: LabeledFile, labels: Sequence[str] | None = None, *, several: bool = False
) -> ExamplesFile:
    """Read a file or table, or its part. DataError with file and line if a column is missing, if a label is not one of `labels`
    (default: any), or unless `several`, if a text has more than one label."""
    lines, unusable = [], UnusableLines(lambda problem: file.place(problem.line))
    for number, row in read_labeled_rows(data, file):
        result = row if isinstance(row, LineProblem) else as_example(data, row, file.place(number), number)
        if isinstance(result, Example) and not several:
            result = one_label(data, result, file.place(number), number)
        if isinstance(result, LineProblem):
            unusable.add(result)
        else:
            lines.append(ExampleLine(number, result))
    if data.header is None and file.kind == "tsv":
        refuse_header(file.path, lines)
    if labels is not None:
        refuse_unknown_label(file, lines, labels)
    if file.part is not None and data.split is not None:
        texts = ["\n".join(example.texts) for _, example in lines]
        lines = select_part(lines, texts, SplitPart(file.part, data.split))
    return ExamplesFile(lines, unusable)


def read_labeled_rows(data: LabeledConfig, file: LabeledFile) -> Iterator[Row]:
    """The rows of a file, table or toy: the value of the label, then the texts."""
    if isinstance(file.path, ToySplit):
        name, split, size = file.path
        yield from enumerate(map(list, sample(LABELED[cast(LabeledToy, name)], split, size)), start=1)
        return
    if file.kind != "table":
        yield from READERS[file.kind](file.path, (data.label, *data.texts))
        return
    names = [str(name) for name in (data.label, *data.texts)]
    for row, cells in enumerate(read_rows(file.path, names[1:], label=names[0]), start=1):
        texts = [usable_text(cell or b"", row) for cell in cells]
        yield row, next((text for text in texts if isinstance(text, LineProblem)), texts)


def as_example(data: LabeledConfig, values: Sequence[Any], place: str, line: int) -> Example | LineProblem:
    """Return the example of these values, the label first, or why it is unusable; DataError for values of a wrong type."""
    labels = parse_labels(data, values[0], place, line)
    if isinstance(labels, LineProblem):
        return labels
    for column, value in zip(data.texts, values[1:], strict=True):
        if value is None or (isinstance(value, str) and not value.strip()):
            return LineProblem("blank", line, "source", f"column {column!r} is empty; expected a text")
        if not isinstance(value, str):
            raise DataError(f"{place}: field {column!r} is {shorten_json(value)}; expected a string")
    return Example(labels, tuple(values[1:]))


def parse_labels(data: LabeledConfig, value: Any, place: str, line: int) -> tuple[str, ...] | LineProblem:
    """The labels of a text; none in an empty list, or in an empty cell if `label_separator` is set."""
    separator = data.label_separator
    if isinstance(value, list):
        parts = value
    elif isinstance(value, str) and separator is not None:
        parts = value.split(separator) if value.strip() else []
    else:
        parts = [] if value is None else [value]
    for part in parts:
        if not isinstance(part, str | int):
            raise DataError(
                f"{place}: field {data.label!r} is {shorten_json(value)}; expected a string, an integer, true or false, or a "
                "list of these",
            )
    names = [str(part).lower() if isinstance(part, bool) else str(part) for part in parts]
    if separator is not None or isinstance(value, list):
        names = [name.strip() for name in names]
    if not all(name.strip() for name in names) or (value is None and separator is None):
        return no_label(data, line)
    return tuple(dict.fromkeys(names))


def one_label(data: LabeledConfig, example: Example, place: str, line: int) -> Example | LineProblem:
    """The example itself if it has one label; without any, it is unusable."""
    if not example.labels:
        return no_label(data, line)
    if len(example.labels) > 1:
        raise DataError(f"{place} has {len(example.labels)} labels: {', '.join(example.labels):.60}; expected one")
    return example


def no_label(data: LabeledConfig, line: int) -> LineProblem:
    return LineProblem("blank", line, "source", f"column {data.label!r} is empty; expected a label")


def refuse_unknown_label(file: LabeledFile, lines: Iterable[ExampleLine], labels: Sequence[str]) -> None:
    """Raise at the first label that is not one of `labels`."""
    known = set(labels)
    for number, example in lines:
        for label in example.labels:
            if label not in known:
                close = nearest(label, labels)
                raise DataError(
                    f"{file.place(number)} has the label {label!r:.40}; expected one of: {', '.join(labels)}",
                    hint=f"did you mean {close!r}?" if close else "correct the label, or add it to task.labels",
                )


def refuse_header(path: Path | ToySplit, lines: Sequence[ExampleLine]) -> None:
    """Raise if line 1 looks like a header: its label is a column name, or the only label that occurs once."""
    if not lines or lines[0].line != 1 or len(lines[0].example.labels) != 1:
        return
    counts = Counter(label for _, example in lines for label in example.labels)
    (first,) = lines[0].example.labels
    alone = counts[first] == 1 and len(counts) > 2 and all(count > 1 for label, count in counts.items() if label != first)
    if alone or (counts[first] == 1 and LABEL_COLUMN.fullmatch(first.strip().lower())):
        raise DataError(
            f"{path} line 1 looks like a header: its label is {first!r:.40}, which no other line has",
            hint="set data.header = true, and the names of the columns in data.label and data.texts; or set "
            "data.header = false to train on that line",
        )
