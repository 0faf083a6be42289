"""Labeled texts, one table per split: [data] with form = "labeled".

folder = "sst2"        with train.tsv, valid.tsv and test.tsv, plain or .gz; columns are separated by tabs
label = 1              column of the label
texts = [2]            columns of the texts: one, or a pair of texts, or a context and its possible endings
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from heedful.config.base import Config, Count, Problem, Size, ZeroOrCount, ZeroOrSmallCount, refuse
from heedful.data.report import CorpusCheck
from heedful.data.sources import ALIASES, find_folder, find_path, missing_split
from heedful.data.unusable import MAX_UNUSABLE, LineProblem, Share, UnusableLines, usable_text
from heedful.errors import DataError, nearest
from heedful.storage.reading import read_lines

LABEL_COLUMN = re.compile("labels?|class|category|target|sentiment|gold_label|score|rating|y|text|sentence|sentence1|premise")


class LabeledConfig(Config):
    form: Literal["labeled"]
    """Form of the data: texts with labels."""
    folder: str | None = None
    """Folder with train.tsv, valid.tsv and test.tsv, plain or .gz."""
    train: str | None = None
    """Training file, instead of the folder's."""
    valid: str | None = None
    """Validation file, instead of the folder's."""
    test: str | None = None
    """Test file, instead of the folder's."""
    header: bool | None = None
    """Whether line 1 of each file is a header and is skipped; default: an error if it looks like one."""
    label: Size = 1
    """Column of the label, counted from 1."""
    texts: Annotated[tuple[Size, ...], Field(min_length=1)] = (2,)
    """Columns of the texts, counted from 1."""
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
        refuse(problems)
        return self

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
    """Return the file of a split; None if there is no test set."""
    name: str | None = getattr(data, split)
    if name is not None:
        return find_path(name)
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
        conversions=unusable.conversions([path]),
        unit="examples",
        remark=", ".join(f"{label}: {counts[label]:,}" for label in labels),
    )


def scan_examples(data: LabeledConfig, path: Path, labels: Sequence[str] | None = None) -> ExamplesFile:
    """Read a file; DataError with file and line if a column is missing, or if a label is not one of `labels`; default: any
    label."""
    lines, unusable = [], UnusableLines(lambda problem: f"{path} line {problem.line}")
    for number, raw in enumerate(read_lines(path), start=1):
        if number == 1 and data.header:
            continue
        result = parse_example(data, raw, path, number)
        if isinstance(result, LineProblem):
            unusable.add(result)
        else:
            lines.append(ExampleLine(number, result))
    if data.header is None:
        refuse_header(path, lines)
    if labels is not None:
        refuse_unknown_label(path, lines, labels)
    return ExamplesFile(lines, unusable)


def parse_example(data: LabeledConfig, raw: bytes, path: Path, number: int) -> Example | LineProblem:
    """Return the example of a line, or why it is unusable; DataError if it has too few columns."""
    text = usable_text(raw, number)
    if isinstance(text, LineProblem):
        return text
    cells = text.split("\t")
    columns = max(data.label, *data.texts)
    if len(cells) < columns:
        given = f"{len(cells)} column{'s' * (len(cells) != 1)}"
        raise DataError(
            f"{path} line {number} has {given}; expected at least {columns}, separated by tabs",
            hint="check data.label and data.texts, which are counted from 1, and the tabs of that line",
        )
    empty = next((column for column in (data.label, *data.texts) if not cells[column - 1].strip()), None)
    if empty is not None:
        expected = "label" if empty == data.label else "text"
        return LineProblem("blank", number, "source", f"column {empty} is empty; expected a {expected}")
    return Example(cells[data.label - 1], tuple(cells[column - 1] for column in data.texts))


def refuse_unknown_label(path: Path, lines: Iterable[ExampleLine], labels: Sequence[str]) -> None:
    """Raise at the first label that is not one of `labels`."""
    for number, example in lines:
        if example.label not in labels:
            close = nearest(example.label, labels)
            raise DataError(
                f"{path} line {number} has the label {example.label!r:.40}; expected one of: {', '.join(labels)}",
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
