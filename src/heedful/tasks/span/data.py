"""The data of span extraction: a question and a window of its context become a sequence.

    tokens    [start question end window end]
    spans     the characters of each token of the window, to find the tokens of an answer and the text of a prediction

A context that does not fit is divided into windows that begin every `data.stride` tokens. In a window without the whole answer,
the answer is the start token. A question has at most half of the tokens; its end is cut off.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from heedful.data.report import CheckReport
from heedful.data.row_files import check_file, find_split_file, scan_file
from heedful.data.sources import refuse_streams
from heedful.data.spans import Answer, Question, SpansConfig, refuse_other_text, spans_form
from heedful.data.splits import SPLITS
from heedful.errors import DataError
from heedful.nn import masks
from heedful.tasks.base import ExampleFile, RunConfig, Tokenizers
from heedful.tasks.batches import pad_length
from heedful.tasks.span.config import SpanConfig
from heedful.text.tokenizer import Tokenizer

ENCODE_BATCH = 256  # texts encoded at a time
Span = tuple[int, int]  # characters [start, end) of the context, or tokens


class SpanRow(NamedTuple):
    """A question with a window of its context."""

    example: int  # index of the question
    tokens: list[int]
    second: int  # index of the first token of the window
    spans: list[Span]  # characters of each token of the window
    first: int  # index of the first and the last token of the answer; 0: it is not in the window
    last: int


class SpanBatch(NamedTuple):
    tokens: Tensor  # (rows, time)
    lengths: Tensor  # (rows,): real tokens
    second: Tensor  # (rows,): index of the first token of the context
    choices: Tensor  # (rows, time): True for tokens that can be the first or the last of an answer
    first: Tensor  # (rows,): first token of the answer
    last: Tensor  # (rows,)

    @property
    def mask(self) -> Tensor:
        """(rows, time): True for real tokens."""
        return masks.padding(self.lengths, self.tokens.shape[1])

    @property
    def segments(self) -> Tensor:
        """(rows, time): 0 for the question, 1 for the context."""
        return (torch.arange(self.tokens.shape[1], device=self.tokens.device) >= self.second[:, None]).long()

    def pin(self) -> SpanBatch:
        return SpanBatch(*(tensor.pin_memory() for tensor in self))

    def to(self, device: torch.device) -> SpanBatch:
        return SpanBatch(*(tensor.to(device, non_blocking=True) for tensor in self))


class QuestionRows(NamedTuple):
    """Questions and their rows, one or more for each, in order."""

    questions: list[Question]
    rows: list[SpanRow]


class SpanSplits(NamedTuple):
    train: QuestionRows
    valid: QuestionRows


class SpanData:
    def __init__(self, run: RunConfig) -> None:
        self.config: SpanConfig = run.task
        self.data: SpansConfig = run.data

    def check(self) -> CheckReport:
        """Read every file once; report the unusable lines."""
        refuse_streams(self.files())
        found = ((split, find_split_file(self.data, split)) for split in SPLITS)
        form = spans_form(self.data)
        return CheckReport(tuple(check_file(self.data, split, file, form) for split, file in found if file is not None))

    def files(self) -> list[Path]:
        found = (find_split_file(self.data, split) for split in SPLITS)
        return list(dict.fromkeys(file.path for file in found if file is not None))

    def questions(self, split: str) -> list[Question] | None:
        """The usable questions of a split; None if there is no such split."""
        file = find_split_file(self.data, split)
        return None if file is None else scan_file(self.data, file, spans_form(self.data)).examples

    def lines(self, side: Literal["source", "target"]) -> Iterator[str]:
        """The questions and the contexts, each once, that the tokenizer is trained on."""
        questions = (self.questions("train") or []) if side == "target" else []
        yield from (one.question for one in questions)
        yield from dict.fromkeys(one.context for one in questions)

    @property
    def tags(self) -> list[str]:
        return []

    def prepare(self, tokenizers: Tokenizers, report: CheckReport) -> SpanSplits:
        train, valid = (self.questions(split) or [] for split in ("train", "valid"))
        return SpanSplits(self.encode(train, tokenizers[1]), self.encode(valid, tokenizers[1]))

    def encode(self, questions: Sequence[Question], tokenizer: Tokenizer) -> QuestionRows:
        asked = encode_each([one.question for one in questions], tokenizer)
        contexts = list(dict.fromkeys(one.context for one in questions))
        ids = dict(zip(contexts, encode_each(contexts, tokenizer), strict=True))
        spans = {context: tokenizer.offsets(context) for context in contexts}
        rows: list[SpanRow] = []
        for at, (one, question) in enumerate(zip(questions, asked, strict=True)):
            rows += self.windows(at, question, ids[one.context], spans[one.context], one.answers, tokenizer)
        return QuestionRows(list(questions), rows)

    def windows(
        self,
        example: int,
        question: Sequence[int],
        context: Sequence[int],
        spans: Sequence[Span],
        answers: Sequence[Answer],
        tokenizer: Tokenizer,
    ) -> Iterator[SpanRow]:
        """The rows of a question."""
        marks, most = tokenizer.specials, self.data.max_length
        head = [marks.start, *question[: max(most // 2 - 2, 0)], marks.end]
        answer = token_span(spans, answers[0].start, answers[0].end) if answers else None
        for begin, end in windows_of(len(context), max(most - len(head) - 1, 1), self.data.stride):
            inside = answer is not None and begin <= answer[0] and answer[1] < end
            first, last = (len(head) + at - begin for at in answer) if answer is not None and inside else (0, 0)
            tokens = [*head, *context[begin:end], marks.end]
            yield SpanRow(example, tokens, len(head), list(spans[begin:end]), first, last)

    def collate(self, rows: Sequence[SpanRow], padding: int) -> SpanBatch:
        time = pad_length(max(len(row.tokens) for row in rows), self.data.length_multiple, self.data.max_length)
        choices = torch.zeros(len(rows), time, dtype=torch.bool)
        choices[:, 0] = True
        for at, row in enumerate(rows):
            real = torch.tensor([start < end for start, end in row.spans], dtype=torch.bool)
            choices[at, row.second : row.second + len(row.spans)] = real
        return SpanBatch(
            torch.tensor([[*row.tokens, *[padding] * (time - len(row.tokens))] for row in rows]),
            torch.tensor([len(row.tokens) for row in rows]),
            torch.tensor([row.second for row in rows]),
            choices,
            torch.tensor([row.first for row in rows]),
            torch.tensor([row.last for row in rows]),
        )

    def usage_and_limits(self, folder: str) -> tuple[str, str]:
        usage = f'extractor = heedful.SpanExtractor.load("{folder}")\nextractor.predict([("…?", "…")])'
        return usage, "Every question is answered by a part of the given text, even if the text does not contain the answer."


def encode_each(texts: Sequence[str], tokenizer: Tokenizer) -> list[list[int]]:
    parts = (texts[at : at + ENCODE_BATCH] for at in range(0, len(texts), ENCODE_BATCH))
    return [ids for part in parts for ids in tokenizer.encode_many(part)]


def windows_of(count: int, room: int, stride: int) -> Iterator[Span]:
    """The windows [begin, end) of `count` tokens, of at most `room` tokens each, that begin every `stride` tokens."""
    begin = 0
    while begin + room < count:
        yield begin, begin + room
        begin += min(stride, room)
    yield begin, count


def token_span(spans: Sequence[Span], start: int, end: int) -> Span | None:
    """The first and the last token that have one of the characters [start, end); None if no token has."""
    found = [at for at, (left, right) in enumerate(spans) if left < end and right > start and left < right]
    return (found[0], found[-1]) if found else None


def format_examples(examples: Iterable[Any]) -> ExampleFile:
    """(question, context, answer, first character of the answer) tuples as lines of JSON."""
    rows = []
    for number, example in enumerate(examples, start=1):
        parts = list(example) if isinstance(example, tuple | list) else []
        texts, start = parts[:3], parts[3:]
        usable = len(parts) == 4 and all(isinstance(text, str) and text.strip() for text in texts)
        if not usable or not isinstance(start[0], int):
            expected = "a tuple (question, context, answer, index of its first character in the context)"
            raise DataError(f"example {number} is {example!r:.60}; expected {expected}")
        refuse_other_text(Answer(texts[2], start[0]), texts[1], f"example {number}")
        row = dict(zip(("question", "context", "answer", "answer_start"), parts, strict=True))
        rows.append(json.dumps(row, ensure_ascii=False))
    names = {name: name for name in ("question", "context", "answer", "answer_start")}
    options = {**names, "split": [1.0, 0.0, 0.0]}
    return ExampleFile(".jsonl", "".join(f"{row}\n" for row in rows), "file", data=options)
