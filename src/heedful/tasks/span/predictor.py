"""Trained span extraction: heedful.load("runs/mine").predict([("where is the key?", "the key is in the box")])."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, ClassVar, NamedTuple, cast, overload

from torch import Tensor

from heedful.data.input_lines import CHUNK_LINES, refuse_too_long
from heedful.data.spans import Question
from heedful.errors import ConfigError
from heedful.search import SearchConfig
from heedful.tasks.predictor import (
    Figures,
    Loader,
    Predictor,
    Searcher,
    ValidationResult,
    check_split,
    missing_split_error,
    note_unknown_in_chunks,
)
from heedful.tasks.span.data import QuestionRows, SpanBatch, SpanData
from heedful.tasks.span.evaluate import best_of_windows, evaluate, find_spans
from heedful.tasks.span.model import SpanModel, span_losses

Input = str | tuple[str, str]  # a question and its context; as one text, separated by a tab


class ExtractedAnswer(NamedTuple):
    """The most probable answer: text = context[start:end]."""

    question: str
    text: str
    start: int
    end: int
    probability: float  # of its first and its last token, in its window of the context

    def rows(self) -> list[str]:
        return [self.text]

    def to_dict(self) -> dict[str, Any]:
        offsets = {"start": self.start, "end": self.end, "probability": self.probability}
        return {"question": self.question, "answer": self.text, **offsets}


class SpanExtractor(Predictor):
    """A trained model that answers a question by a part of a given text.

    >>> extractor = heedful.SpanExtractor.load(span_run)
    >>> context = "the key is in the box"
    >>> (answer,) = extractor.predictions([("where is the key?", context)])
    >>> context[answer.start : answer.end] == extractor.predict(f"where is the key?\\t{context}")
    True
    """

    phases: ClassVar[tuple[str, ...]] = ("training step", "prediction")

    @property
    def extractor(self) -> SpanModel:
        """The model with its head."""
        return cast(SpanModel, cast(object, self.model))

    @property
    def spans(self) -> SpanData:
        return SpanData(self.run)

    @overload
    def predict(self, inputs: str, **options: Any) -> str: ...
    @overload
    def predict(self, inputs: Sequence[Input], **options: Any) -> list[str]: ...
    def predict(self, inputs: Sequence[Input], **options: Any) -> str | list[str]:
        """The answers to (question, context) pairs, or to one text: the question, a tab and the context."""
        given: Sequence[Input] = [inputs] if isinstance(inputs, str) else inputs
        answers = [answer.text for answer in self.predictions(given, **options)]
        return answers[0] if isinstance(inputs, str) else answers

    def predictions(self, texts: Iterable[Input], **options: Any) -> Iterator[ExtractedAnswer]:
        """Yield the answers one by one, with offsets and probabilities."""
        if options:
            raise ConfigError(f"given {next(iter(options))!r}, but task 'span' has no options")
        remaining = iter(texts)
        return self.answers(iter(lambda: list(islice(remaining, CHUNK_LINES)), []))

    def predict_chunks(
        self, chunks: Iterable[Sequence[str]], config: SearchConfig, options: Any, unknown: dict[str, int]
    ) -> Iterator[ExtractedAnswer]:
        return self.answers(note_unknown_in_chunks(chunks, self.system.target_tokenizer, unknown))

    def answers(self, chunks: Iterable[Sequence[Input]]) -> Iterator[ExtractedAnswer]:
        number = 1
        for chunk in chunks:
            questions = [question_from(given, at) for at, given in enumerate(chunk, start=number)]
            rows = self.encoded(questions).rows
            found = best_of_windows(rows, find_spans(self.extractor, self.system, self.spans, rows))
            for question, span in zip(questions, found, strict=True):
                text = question.context[span.start : span.end]
                yield ExtractedAnswer(question.question, text, span.start, span.end, math.exp(span.log_probability))
            number += len(chunk)

    def encoded(self, questions: Sequence[Question]) -> QuestionRows:
        return self.spans.encode(questions, self.system.target_tokenizer)

    def questions(self, split: str) -> list[Question]:
        """The questions of a split of the run's data."""
        check_split(self.run.data, split)
        found = self.spans.questions(split)
        if found is None:
            raise missing_split_error(split)
        return found

    def evaluate(self, split: str = "test") -> dict[str, float]:
        """Loss, exact match and F1 on a split of the run's data."""
        return evaluate(self.extractor, self.system, self.spans, self.encoded(self.questions(split)))

    def report(self, split: str | None, options: Any, *, load: Loader, search: Searcher) -> Figures:
        return Figures(split or "test", self.evaluate(split or "test"))

    def validate(self) -> ValidationResult:
        return ValidationResult(self.evaluate("valid"), None, None, {})

    def training_losses(self, count: int) -> Iterator[Callable[[], Tensor]]:
        """Of the first `count` windows of the training data."""
        rows = self.encoded(self.questions("train")[:count]).rows[:count]
        for at in range(0, len(rows), self.run.data.batch):
            batch = self.spans.collate(rows[at : at + self.run.data.batch], self.system.target_tokenizer.specials.pad)
            yield partial(row_losses, self.extractor, batch.to(self.system.device))


def question_from(given: Input, number: int) -> Question:
    """An input as a question without known answer; an error if it has another form."""
    parts = given.split("\t", 1) if isinstance(given, str) else given
    if len(parts) != 2 or not all(isinstance(part, str) and part.strip() for part in parts):
        raise ConfigError(
            f"input {number} is {given!r:.60}; expected a question and a context, in Python as a tuple, in a line separated by "
            "a tab"
        )
    for part in parts:
        refuse_too_long(part, f"input {number}")
    return Question(parts[0], parts[1], ())


def row_losses(model: SpanModel, batch: SpanBatch) -> Tensor:
    """The loss of each row of a batch, (rows,)."""
    return span_losses(model(batch.tokens, batch.mask, batch.segments, batch.choices), batch.first, batch.last)
