"""Questions whose answers are parts of a text: [data] with form = "spans".

    {"question": "where is the key?", "context": "the key is in the box", "answer": "in the box", "answer_start": 11}

in each line of a .jsonl file; other names by `question`, `context`, `answer` and `answer_start`, and a dot selects a nested
field: `answers.text`. `answer_start` counts characters of the context from 0. Several accepted answers are two lists of equal
length; the model is trained on the first. Tables work as well (`row_files.py`), with one answer in each row.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from pydantic import model_validator

from heedful.config.base import Problem, Size, describe_default, refuse
from heedful.data.row_files import RowFilesConfig, RowForm
from heedful.data.rows import shorten_json
from heedful.data.sources import ColumnName
from heedful.data.unusable import LineProblem
from heedful.errors import DataError

SHOWN = 40  # characters of a text in messages
MIN_LENGTH = 8  # tokens of a sequence: three special ones, and some of the question and of the context


class SpansConfig(RowFilesConfig):
    form: Literal["spans"]
    """Form of the data: questions with texts that contain the answers."""
    question: Size | ColumnName = "question"
    """Field or column of the question; in tab-separated files without header its number, counted from 1."""
    context: Size | ColumnName = "context"
    """Field of the text that contains the answer."""
    answer: Size | ColumnName = "answer"
    """Field of the answer, or of a list of accepted answers."""
    answer_start: Size | ColumnName = "answer_start"
    """Field of the first character of the answer in the context, counted from 0, or of a list."""
    stride: Size = 128
    """Tokens between the beginnings of two windows of a context that is longer than max_length allows."""

    @property
    def columns(self) -> dict[str, Size | ColumnName]:
        """The columns by option."""
        return {name: getattr(self, name) for name in ("question", "context", "answer", "answer_start")}

    @model_validator(mode="after")
    def _fits_together(self) -> SpansConfig:
        problems = [*self.split_problems(), *self.column_problems({name: [one] for name, one in self.columns.items()})]
        if len(set(self.columns.values())) != len(self.columns):
            problems.append(Problem("answer", "given the same column twice; expected four columns that differ"))
        if self.max_length < MIN_LENGTH:
            problems.append(Problem("max_length", f"given {self.max_length}, expected at least {MIN_LENGTH}"))
        if self.stride >= self.max_length:
            problems.append(Problem("stride", f"given {self.stride}, expected less than max_length = {self.max_length}"))
        refuse(describe_default(self, problem) for problem in problems)
        return self


class Answer(NamedTuple):
    text: str
    start: int  # first character in the context

    @property
    def end(self) -> int:
        """The character after the last one."""
        return self.start + len(self.text)


class Question(NamedTuple):
    question: str
    context: str
    answers: tuple[Answer, ...]


def spans_form(data: SpansConfig) -> RowForm[Question]:
    def parse(values: list[Any], place: str, line: int) -> Question | LineProblem:
        question, context, answer, start = values
        texts = as_list(answer)
        for column, given in ((data.question, [question]), (data.context, [context]), (data.answer, texts)):
            if not given or any(text is None or (isinstance(text, str) and not text.strip()) for text in given):
                return LineProblem("blank", line, "source", f"column {column!r} is empty; expected a text")
            wrong = [text for text in given if not isinstance(text, str)]
            if wrong:
                raise DataError(f"{place}: field {column!r} is {shorten_json(wrong[0])}; expected a string")
        starts = [number for value in as_list(start) if (number := as_number(value)) is not None]
        if len(starts) != len(texts) or len(starts) != len(as_list(start)):
            count = "an integer from 0" if len(texts) == 1 else f"a list of {len(texts)} integers from 0, as many as answers"
            raise DataError(f"{place}: field {data.answer_start!r} is {shorten_json(start)}; expected {count}")
        answers = tuple(Answer(text, number) for text, number in zip(texts, starts, strict=True))
        for one in answers:
            refuse_other_text(one, context, place)
        return Question(question, context, answers)

    columns = list(data.columns.values())
    return RowForm(columns, "data.question, context, answer and answer_start", parse, lambda example: example.context)


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def as_number(value: Any) -> int | None:
    """A number from 0, which is a text in tables; None if it is none."""
    if isinstance(value, str) and value.strip().isdecimal():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def refuse_other_text(answer: Answer, context: str, place: str) -> None:
    """Raise an error if the context does not have the answer at its first character."""
    found = context[answer.start : answer.end]
    if found == answer.text:
        return
    at = context.find(answer.text)
    raise DataError(
        f"{place}: at character {answer.start} the context has {found[:SHOWN]!r}; expected the answer, {answer.text[:SHOWN]!r}",
        hint=f"it is at character {at}; characters are counted from 0" if at >= 0 else "the context does not contain it",
    )
