"""Pairs of similar texts: [data] with form = "similar".

    columns = ["question", "duplicate"]               an anchor and a positive, a text that is similar to it
    columns = ["question", "duplicate", "other"]      further columns: hard negatives, texts that look similar but are not
    columns = [1, 2]                                  tab-separated files without header: numbers, counted from 1

Files and `split` as in `row_files.py`. A hard negative may be empty; in JSONL it may be a list of texts.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, model_validator

from heedful.config.base import Problem, Size, describe_default, refuse
from heedful.data.row_files import RowFilesConfig, RowForm
from heedful.data.rows import shorten_json
from heedful.data.sources import ColumnName
from heedful.data.unusable import LineProblem
from heedful.errors import DataError


class SimilarConfig(RowFilesConfig):
    form: Literal["similar"]
    """Form of the data: pairs of similar texts."""
    columns: Annotated[tuple[Size | ColumnName, ...], Field(min_length=2)] = (1, 2)
    """Columns of the anchor, of the positive, and of hard negatives: names; in tab-separated files without header numbers,
    counted from 1."""

    @model_validator(mode="after")
    def _fits_together(self) -> SimilarConfig:
        problems = [*self.split_problems(), *self.column_problems({"columns": self.columns})]
        if len(set(self.columns)) != len(self.columns):
            problems.append(Problem("columns", f"given {list(self.columns)!r}, expected columns that differ"))
        refuse(describe_default(self, problem) for problem in problems)
        return self


class SimilarTexts(NamedTuple):
    anchor: str
    positive: str
    negatives: tuple[str, ...] = ()  # hard negatives


def similar_form(data: SimilarConfig) -> RowForm[SimilarTexts]:
    def parse(values: list[Any], place: str, line: int) -> SimilarTexts | LineProblem:
        for column, value in zip(data.columns[:2], values, strict=False):
            if value is None or (isinstance(value, str) and not value.strip()):
                return LineProblem("blank", line, "source", f"column {column!r} is empty; expected a text")
            if not isinstance(value, str):
                raise DataError(f"{place}: field {column!r} is {shorten_json(value)}; expected a string")
        negatives: list[str] = []
        for column, value in zip(data.columns[2:], values[2:], strict=True):
            texts = value if isinstance(value, list) else [] if value is None else [value]
            if not all(isinstance(text, str) for text in texts):
                expected = "a string or a list of strings"
                raise DataError(f"{place}: field {column!r} is {shorten_json(value)}; expected {expected}")
            negatives += [text for text in texts if text.strip()]
        return SimilarTexts(values[0], values[1], tuple(negatives))

    return RowForm(data.columns, "data.columns", parse, lambda example: example.anchor)
