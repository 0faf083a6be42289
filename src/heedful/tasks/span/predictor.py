"""Trained span extraction: heedful.load("runs/mine").predict([("where is the key?", "the key is in the box")])."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast, overload

from torch import Tensor

from heedful.data.input_lines import CHUNK_LINES, checked_chunks, refuse_too_long
from heedful.data.row_files import RowFile, find_split_file, scan_file
from heedful.data.rows import format_of
from heedful.data.samples import Sample
from heedful.data.spans import Answer, Question, spans_form
from heedful.errors import ConfigError, DataError
from heedful.nn.model import inference_context
from heedful.search import SearchConfig
from heedful.tasks.encoded_example import Decoded, EncodedExample
from heedful.tasks.forced import ForcedBatch
from heedful.tasks.predictor import (
    Figures,
    Loader,
    Predictor,
    Searcher,
    ValidationResult,
    check_split,
    missing_split_error,
    note_unknown_in_chunks,
    refuse_empty,
)
from heedful.tasks.span import forced
from heedful.tasks.span.data import QuestionRows, SpanBatch, SpanData, SpanRow
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
    def input_names(self) -> Sequence[str]:
        return ["question", "context"]

    @property
    def spans(self) -> SpanData:
        return SpanData(self.run)

    @overload
    def predict(self, inputs: str, **options: Any) -> str: ...
    @overload
    def predict(self, inputs: Sequence[Input], **options: Any) -> list[str]: ...
    def predict(self, inputs: Sequence[Input], **options: Any) -> str | list[str]:
        """The answers to (question, context) pairs, or to one text: the question, a tab and the context."""
        found: str | list[str] = self.apply(inputs, lambda prediction: prediction.text, **options)
        return found

    def predictions(self, texts: Iterable[Input], **options: Any) -> Iterator[ExtractedAnswer]:
        """Yield the answers one by one, with offsets and probabilities."""
        if options:
            raise ConfigError(f"given {next(iter(options))!r}, but task 'span' has no options")
        remaining = iter(texts)
        return self.answers(iter(lambda: list(islice(remaining, CHUNK_LINES)), []))

    def predict_chunks(
        self,
        chunks: Iterable[Sequence[str]],
        config: SearchConfig,
        options: Any,
        unknown: dict[str, int],
        first: int = 1,
    ) -> Iterator[ExtractedAnswer]:
        return self.answers(note_unknown_in_chunks(chunks, self.system.target_tokenizer, unknown, first), first)

    def answers(self, chunks: Iterable[Sequence[Input]], first: int = 1) -> Iterator[ExtractedAnswer]:
        for _, questions in checked_chunks(chunks, question_from, first):
            rows = self.encoded(questions).rows
            found = best_of_windows(rows, find_spans(self.extractor, self.system, self.spans, rows))
            for question, span in zip(questions, found, strict=True):
                text = question.context[span.start : span.end]
                yield ExtractedAnswer(question.question, text, span.start, span.end, math.exp(span.log_probability))

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

    def sample_texts(self, split: str) -> Iterator[Sample]:
        file = find_split_file(self.run.data, split)
        return iter(()) if file is None else self.samples_of(file)

    def read_samples(self, path: Path) -> Iterator[Sample]:
        """Questions in the columns of the run's data."""
        return self.samples_of(RowFile(path, format_of(path.name) or self.run.data.train.kind))

    def samples_of(self, file: RowFile) -> Iterator[Sample]:
        return map(forced.sample_of, scan_file(self.run.data, file, spans_form(self.run.data)).examples)

    def row_of(self, text: str, answer: Answer | None) -> SpanRow | None:
        """The row of a question and its answer, None: the predicted one; None if it needs several windows."""
        question = question_from(text, 1)
        if answer is None:
            (found,) = self.predictions([text])
            answer = Answer(found.text, found.start)
        rows = self.encoded([question._replace(answers=(answer,))]).rows
        return rows[0] if len(rows) == 1 and rows[0].first else None

    def encode_example(self, text: str, target: str | None = None, config: SearchConfig | None = None) -> EncodedExample:
        """The question and the context with the first and the last token of the answer; target: a part of the context, default:
        the predicted answer."""
        refuse_empty(text, target)
        if config is not None:
            raise ConfigError("search options have no effect on a model that extracts answers", hint="remove them")
        context, answer = question_from(text, 1).context, None
        if target is not None:
            if target not in context:
                raise ConfigError(f"target: given {target!r:.60}, which is no part of the context; expected one")
            answer = Answer(target, context.index(target))
        row = self.row_of(text, answer)
        if row is None:
            most = self.run.data.max_length
            raise ConfigError(f"given a question and a context of more than {most} tokens, expected at most as many")
        return forced.encode_row(row, text, self.spans, self.system)

    def decode_example(
        self, example: EncodedExample, prefix: Sequence[int] = (), config: SearchConfig | None = None
    ) -> Decoded:
        """The first and the last token that are most probable, each by itself."""
        if prefix:
            raise ConfigError("answers are extracted, so no token can be forced", hint="compare the tokens' probabilities")
        with inference_context(self.extractor):
            logs = example.logits(self.extractor, example.forward(self.extractor).hidden)[0].log_softmax(-1)
        best, total = logs.argmax(-1).tolist(), float(logs.amax(-1).sum())
        return Decoded(" … ".join(example.outputs.spell(best)), best, total, total)

    def forced_batches(self, samples: Iterable[Sample]) -> Iterator[ForcedBatch]:
        """Missing answers are predicted; questions that need several windows are left out."""
        found = (self.row_of(sample.target or "", forced.answer_of(sample)) for sample in samples)
        return forced.span_batches(self.extractor, self.system, self.spans, [row for row in found if row is not None])


def question_from(given: Input, number: int) -> Question:
    """An input as a question without known answer; an error if it has another form."""
    parts = given.split("\t", 1) if isinstance(given, str) else given
    if len(parts) != 2 or not all(isinstance(part, str) and part.strip() for part in parts):
        raise DataError(
            f"input {number} is {given!r:.60}; expected a question and a context, in Python as a tuple, in a line separated by "
            "a tab"
        )
    for part in parts:
        refuse_too_long(part, f"input {number}")
    return Question(parts[0], parts[1], ())


def row_losses(model: SpanModel, batch: SpanBatch) -> Tensor:
    """The loss of each row of a batch, (rows,)."""
    return span_losses(model(batch.tokens, batch.mask, batch.segments, batch.choices), batch.first, batch.last)
