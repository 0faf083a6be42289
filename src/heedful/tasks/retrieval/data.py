"""The data of retrieval: questions with their history, and answers.

    question    [start question <turn> turn before <turn> turn before that end]         the last `data.turns` turns
    answer      [start answer end]

Both are truncated at the end, so that of a long question the oldest turns are cut. Dialogues (form "dialogues") yield an
example for every reply. Pairs of a question and an answer (form "similar") have one turn, and may have hard negatives. The
answers of the other rows of a batch are negatives as well; left out are those with the same tokens as the question or the
answer, and the answers to the same question.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from heedful.data import dialogues, row_files
from heedful.data.dialogues import DialoguesConfig, TemplateConfig, Turn, format_history
from heedful.data.report import CheckReport
from heedful.data.row_files import RowFile
from heedful.data.similar import SimilarConfig, similar_form
from heedful.data.sources import refuse_streams
from heedful.data.splits import SPLITS
from heedful.errors import DataError
from heedful.tasks.base import ExampleFile, RunConfig, Tokenizers
from heedful.tasks.batches import pad_length
from heedful.tasks.embedding.data import Ids, allowed_candidates, encode_texts
from heedful.tasks.retrieval.batch import ReplyBatch
from heedful.tasks.retrieval.config import RetrievalConfig
from heedful.text.tokenizer import Tokenizer


class Example(NamedTuple):
    question: tuple[str, ...]  # the turns before the answer, oldest first
    answer: str
    negatives: tuple[str, ...] = ()  # hard negatives


class EncodedExamples(NamedTuple):
    """The examples of a split; answers are numbers of distinct texts."""

    questions: list[Ids]
    answers: list[int]
    negatives: list[tuple[int, ...]]
    texts: list[str]  # distinct answers and hard negatives
    ids: list[Ids]  # of these

    @property
    def width(self) -> int:
        """The most hard negatives of an example."""
        return max(map(len, self.negatives), default=0)


class RetrievalSplits(NamedTuple):
    train: EncodedExamples
    valid: EncodedExamples


class RetrievalData:
    def __init__(self, run: RunConfig) -> None:
        self.config: RetrievalConfig = run.task
        self.data: DialoguesConfig | SimilarConfig = run.data

    @property
    def turns(self) -> int:
        """Maximum turns of a question, history included."""
        return self.data.turns if isinstance(self.data, DialoguesConfig) else 1

    @property
    def template(self) -> TemplateConfig:
        return self.data.template if isinstance(self.data, DialoguesConfig) else TemplateConfig()

    def split_file(self, split: str) -> RowFile | None:
        if isinstance(self.data, DialoguesConfig):
            return dialogues.find_split_file(self.data, split)
        return row_files.find_split_file(self.data, split)

    def check(self) -> CheckReport:
        """Read every file once; report the unusable lines."""
        refuse_streams(self.files())
        found = ((split, file) for split in SPLITS if (file := self.split_file(split)) is not None)
        if isinstance(self.data, DialoguesConfig):
            return CheckReport(tuple(dialogues.check_dialogues(self.data, split, file) for split, file in found))
        form = similar_form(self.data)
        return CheckReport(tuple(row_files.check_file(self.data, split, file, form) for split, file in found))

    def files(self) -> list[Path]:
        return list(dict.fromkeys(file.path for split in SPLITS if (file := self.split_file(split)) is not None))

    def examples(self, split: str) -> list[Example] | None:
        """The usable examples of a split; None if there is no such split."""
        file = self.split_file(split)
        if file is None:
            return None
        if isinstance(self.data, DialoguesConfig):
            found = dialogues.expand(self.data, dialogues.read_dialogues(self.data, file))
            return [Example(tuple(turn.text for turn in one.history), one.reply.text) for one in found]
        pairs = row_files.scan_file(self.data, file, similar_form(self.data)).examples
        return [Example((pair.anchor,), pair.positive, pair.negatives) for pair in pairs]

    def lines(self, side: Literal["source", "target"]) -> Iterator[str]:
        """The texts that the tokenizer is trained on: of every example the last turn, the answer and hard negatives."""
        for example in (self.examples("train") or ()) if side == "target" else ():
            yield from (example.question[-1], example.answer, *example.negatives)

    @property
    def tags(self) -> list[str]:
        return self.template.tags if isinstance(self.data, DialoguesConfig) else []

    def prepare(self, tokenizers: Tokenizers, report: CheckReport) -> RetrievalSplits:
        train, valid = (self.encode(self.examples(split) or [], tokenizers[1]) for split in ("train", "valid"))
        return RetrievalSplits(train, valid)

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer) -> EncodedExamples:
        texts = list(dict.fromkeys(text for example in examples for text in (example.answer, *example.negatives)))
        numbers = {text: number for number, text in enumerate(texts)}
        return EncodedExamples(
            self.encode_questions([example.question for example in examples], tokenizer),
            [numbers[example.answer] for example in examples],
            [tuple(numbers[text] for text in example.negatives) for example in examples],
            texts,
            self.encode_answers(texts, tokenizer),
        )

    def encode_questions(self, questions: Sequence[Sequence[str]], tokenizer: Tokenizer) -> list[Ids]:
        """Tokens of the last turns of each question; of those that are too many the oldest are cut."""
        return encode_texts([self.join_turns(question) for question in questions], tokenizer, self.data.max_length)

    def join_turns(self, question: Sequence[str]) -> str:
        """The last turns of a question as one text, the newest turn first: its tokens have the same positions in every
        question. Speakers alternate, and the first speaks last."""
        turns = [Turn(text, at % 2) for at, text in enumerate(reversed(question[-self.turns :]))]
        return format_history(self.template, turns, 1)

    def encode_answers(self, answers: Sequence[str], tokenizer: Tokenizer) -> list[Ids]:
        return encode_texts(answers, tokenizer, self.data.max_length)

    def collate(self, examples: EncodedExamples, chosen: Sequence[int], width: int, padding: int) -> ReplyBatch:
        """The batch of chosen examples; width: hard negatives of each, filled up with empty texts."""
        questions = [examples.questions[i] for i in chosen]
        answers: list[list[Ids]] = []
        for i in chosen:
            texts = [examples.ids[number] for number in (examples.answers[i], *examples.negatives[i])]
            answers.append([*texts, *[()] * (1 + width - len(texts))])
        index: dict[Ids, int] = {}
        rows = [[question, *texts] for question, texts in zip(questions, answers, strict=True)]
        same = torch.tensor([[index.setdefault(text, len(index)) for text in texts] for texts in rows])  # (rows, 2 + width)
        flat, lengths = self.pad([text for texts in answers for text in texts], padding)
        padded, question_lengths = self.pad(questions, padding)
        allowed = allowed_candidates(same, torch.tensor([list(map(len, texts)) for texts in rows]))
        shape = (len(answers), 1 + width)
        places = torch.arange(len(rows))
        return ReplyBatch(padded, question_lengths, flat.view(*shape, -1), lengths.view(shape), allowed, places)

    def pad(self, texts: Sequence[Ids], padding: int) -> tuple[Tensor, Tensor]:
        """(texts, time) and the length of each."""
        time = pad_length(max(map(len, texts)), self.data.length_multiple, self.data.max_length)
        rows = torch.tensor([[*text, *[padding] * (time - len(text))] for text in texts])
        return rows, torch.tensor(list(map(len, texts)))

    def usage_and_limits(self, folder: str) -> tuple[str, str]:
        usage = f'retriever = heedful.Retriever.load("{folder}")\nretriever.search("…", top=5)'
        return usage, (
            f"It returns stored answers only, those of its training data unless others are indexed. Texts are truncated to "
            f"{self.data.max_length} tokens, and of a dialogue the last {self.turns} turns are read."
        )


def format_examples(examples: Iterable[Any]) -> ExampleFile:
    """Dialogues as lists of turns, as lines of JSON."""
    rows = []
    for number, example in enumerate(examples, start=1):
        turns = list(example) if isinstance(example, tuple | list) else []
        if len(turns) < 2 or not all(isinstance(turn, str) and turn.strip() for turn in turns):
            raise DataError(f"example {number} is {example!r:.60}; expected a list of texts, [question, answer, …]")
        rows.append(json.dumps(turns, ensure_ascii=False))
    return ExampleFile(".jsonl", "".join(f"{row}\n" for row in rows), "file")
