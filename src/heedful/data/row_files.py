"""Rows of one text file per split: what the forms "similar" and "spans" have in common, and in part "dialogues".

    train = { file = "train.csv" }       .tsv, .csv or .jsonl, plain or .gz (see `rows.py`)
    valid = { file = "valid.csv" }
    test = { file = "test.csv" }         optional
    split = [0.9, 0.05, 0.05]            only train is given, and split into train, valid and test (`hash_split.py`)

A form adds the options that name its columns, and a function from the values of a row to an example.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
from pydantic import model_validator

from heedful.config.base import Config, Count, PathName, Problem, Size, ZeroOrSmallCount, refuse, unused
from heedful.data.fractions import PARTS, Fractions, SplitPart, fraction_problems, makes_part
from heedful.data.hash_split import select_part
from heedful.data.report import CorpusCheck
from heedful.data.rows import READERS, Columns, Format, format_of
from heedful.data.sources import find_path
from heedful.data.toys import ToySplit
from heedful.data.unusable import MAX_UNUSABLE, LineProblem, Share, UnusableLines
from heedful.errors import DataError

Found = TypeVar("Found")  # an example


class RowTable(Config):
    """One file."""

    file: PathName
    """Text file, .tsv, .csv or .jsonl, plain or .gz."""
    format: Format | None = None
    """Format of `file`; default: by its suffix."""

    @model_validator(mode="after")
    def _has_a_format(self) -> RowTable:
        if self.format is None and format_of(self.file) is None:
            sentence = f"missing; expected tsv, csv or jsonl, because {self.file!r} ends in none of them"
            refuse([Problem("format", sentence)])
        return self

    @property
    def kind(self) -> Format:
        return self.format or format_of(self.file) or "tsv"


class SplitConfig(Config):
    """Options of [data] for examples that are split and batched."""

    split: Fractions | None = None
    """Split `train` into train, valid and test: three fractions; near-duplicates stay together. Default: no split."""
    max_unusable: Share = MAX_UNUSABLE
    """Maximum fraction of unusable lines in a file; more stop the run; 1: any number."""
    max_length: Size = 256
    """Maximum tokens per sequence."""
    batch: Count = 32
    """Examples per batch."""
    pad_to_multiple_of: Size | Literal["auto"] = "auto"
    """Pad lengths to a multiple of this, so that few shapes occur; 1: no extra padding; auto: 16 with CUDA graphs, else 1."""
    prefetch: ZeroOrSmallCount = 4
    """Batches prepared ahead in the background; 0: none."""

    def makes(self, split: str) -> bool:
        """Whether `data.split` makes this part, and others."""
        return makes_part(self.split, split)

    @property
    def length_multiple(self) -> int:
        """`pad_to_multiple_of` as a number: 1 as long as "auto" is not resolved."""
        return 1 if self.pad_to_multiple_of == "auto" else self.pad_to_multiple_of


class RowFilesConfig(SplitConfig):
    """Options of [data] that do not depend on the form."""

    train: RowTable
    """Training data."""
    valid: RowTable | None = None
    """Validation data."""
    test: RowTable | None = None
    """Test data."""

    def split_problems(self) -> list[Problem]:
        """Problems of the splits."""
        if self.split is None:
            return [] if self.valid else [Problem("valid", "missing; expected a table with a file, or data.split")]
        problems = [Problem("split", sentence) for sentence in fraction_problems(self.split)]
        if self.valid is None and not self.makes("valid") and not problems:
            sentence = f"given {list(self.split)}, which leaves nothing to validate on; expected a second fraction > 0"
            problems.append(Problem("split", sentence))
        made = {name: f"data.split makes a {name} part of data.train" for name in ("valid", "test") if self.makes(name)}
        return [*problems, *unused(self, made)]

    def column_problems(self, options: dict[str, Columns]) -> list[Problem]:
        """Columns have names, except those of tab-separated files without header, which have numbers; options: the columns of
        each option."""
        tables = {name: table for name in PARTS if (table := getattr(self, name)) is not None}
        other = next((name for name, table in tables.items() if table.kind != "tsv"), None)
        given = [column for columns in options.values() for column in columns]
        if not any(isinstance(column, int) for column in given):
            return []
        if other is None and not any(isinstance(column, str) for column in given):
            return []
        why = "names" if other is None else f"names, because {other} is a .{tables[other].kind} file"
        wrong = {name: columns for name, columns in options.items() if any(isinstance(column, int) for column in columns)}
        return [Problem(name, f"{list(columns)!r} has numbers; expected {why}") for name, columns in wrong.items()]

    @property
    def sides(self) -> tuple[int, int]:
        return 0, self.max_length


class RowFile(NamedTuple):
    """The data of a split: a file, or a part of one."""

    path: Path
    kind: Format
    part: str | None = None  # of data.split; None: all of it
    toy: ToySplit | None = None  # generated instead of read; then the path is only a name


def find_split_file(data: RowFilesConfig, split: str) -> RowFile | None:
    """The file of a split; None if there is no test set."""
    part = split if data.makes(split) else None
    table: RowTable | None = getattr(data, "train" if part else split)
    return None if table is None else RowFile(find_path(table.file), table.kind, part)


class ScannedFile(NamedTuple, Generic[Found]):
    """The usable examples of a file, and its unusable lines."""

    examples: list[Found]
    unusable: UnusableLines


class RowForm(NamedTuple, Generic[Found]):
    """How the rows of a form become examples."""

    columns: Columns
    options: str  # the options that name them, for hints
    parse: Callable[[list[Any], str, int], Found | LineProblem]  # values, file and line for errors, line
    key: Callable[[Found], str]  # the text by which `data.split` compares examples


def scan_file(data: SplitConfig, file: RowFile, form: RowForm[Found]) -> ScannedFile[Found]:
    """Read a file or its part; DataError with file and line where its form is wrong."""
    rows = READERS[file.kind](file.path, form.columns, form.options)
    found = (
        values if isinstance(values, LineProblem) else form.parse(values, f"{file.path} line {line}", line)
        for line, values in rows
    )
    return collect_examples(data, file, found, form.key)


def collect_examples(
    data: SplitConfig, file: RowFile, found: Iterable[Found | LineProblem], key: Callable[[Found], str]
) -> ScannedFile[Found]:
    """The examples of the file's part, and all unusable lines; key: the text by which `data.split` compares examples."""
    examples: list[Found] = []
    unusable = UnusableLines(lambda problem: f"{file.path} line {problem.line}")
    for one in found:
        if isinstance(one, LineProblem):
            unusable.add(one)
        else:
            examples.append(one)
    if file.part is not None and data.split is not None:
        examples = select_part(examples, [key(example) for example in examples], SplitPart(file.part, data.split))
    return ScannedFile(examples, unusable)


def check_file(data: SplitConfig, split: str, file: RowFile, form: RowForm[Found]) -> CorpusCheck:
    """Read a file once and report its unusable lines; those of a file that `data.split` splits with its training part."""
    return summarize_scan(data, split, file, scan_file(data, file, form))


def summarize_scan(
    data: SplitConfig, split: str, file: RowFile, scan: ScannedFile[Found], unit: str = "examples"
) -> CorpusCheck:
    """The report on a file that was read."""
    examples, unusable = scan
    reported = file.part in (None, "train")
    if file.part is not None and not examples:
        raise DataError(
            SplitPart(file.part, data.split or (1.0, 0.0, 0.0)).empty(str(file.path), unit.removesuffix("s")) + unusable.note(),
            hint=f"use a larger fraction, or more {unit}",
        )
    return CorpusCheck(
        split=split,
        title=str(file.path),
        total=len(examples) + (unusable.total if reported else 0),
        kept=len(examples),
        findings=unusable.findings() if reported else (),
        dropped=np.zeros(0, np.int64),
        conversions=unusable.conversions([file.path]),
        unit=unit,
    )
