"""A toy task: predict the label of a text as the token after it, and print it reversed.

tests/test_extending.py adds this folder to a copy of the package as `tasks/reverse_label`, with one line in `TASKS`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from heedful.data.input_lines import refuse_too_long
from heedful.data.labeled import Example, LabeledConfig, check_examples, find_split_file, read_examples
from heedful.data.report import CheckReport
from heedful.errors import ConfigError, DataError
from heedful.models.family import Architecture
from heedful.nn.losses import Loss
from heedful.nn.model import SequenceModel
from heedful.search import SearchConfig
from heedful.tasks.base import ExampleFile, RunConfig, Starter, TaskConfig, TaskDefinition, Tokenizers
from heedful.tasks.batch_stream import StreamPosition, stream_batches
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
from heedful.tasks.system import System
from heedful.text.tokenizer import Tokenizer
from heedful.training.loop import StreamedBatch, Validation
from heedful.training.train_state import Direction
from heedful.training.update import Objective


class ReverseLabelConfig(TaskConfig):
    architectures: ClassVar[tuple[Architecture, ...]] = ("decoder",)
    name: Literal["reverse_label"]
    """Task."""
    labels: tuple[str, ...]
    """The labels as in the data, each one word."""

    @property
    def metrics(self) -> Mapping[str, Direction]:
        return {"loss": "lower", "accuracy": "higher"}


class LastTokens(NamedTuple):
    """Texts, and the label that follows each."""

    tokens: Tensor  # (rows, time), padded at the end
    last: Tensor  # (rows,): position of the last token of each text
    labels: Tensor  # (rows,)

    def pin(self) -> LastTokens:
        return LastTokens(*(tensor.pin_memory() for tensor in self))


class Splits(NamedTuple):
    train: list[Example]
    valid: list[Example]


class ReverseLabelData:
    def __init__(self, run: RunConfig) -> None:
        self.data: LabeledConfig = run.data
        self.labels: tuple[str, ...] = run.task.labels

    def check(self) -> CheckReport:
        files = ((split, find_split_file(self.data, split)) for split in ("train", "valid", "test"))
        return CheckReport(tuple(check_examples(self.data, split, file, self.labels) for split, file in files if file))

    def files(self) -> list[Path]:
        files = (find_split_file(self.data, split) for split in ("train", "valid", "test"))
        return [file.path for file in files if file is not None and isinstance(file.path, Path)]  # built-in data has no path

    def examples(self, split: str) -> list[Example]:
        file = find_split_file(self.data, split)
        if file is None:
            raise missing_split_error(split)
        return read_examples(self.data, file, self.labels)

    def lines(self, side: Literal["source", "target"]) -> Iterator[str]:
        for example in self.examples("train") if side == "target" else ():
            yield from (*example.texts, *example.labels)

    @property
    def tags(self) -> list[str]:
        return []

    def prepare(self, tokenizers: Tokenizers, report: CheckReport) -> Splits:
        return Splits(self.examples("train"), self.examples("valid"))

    def usage_and_limits(self, folder: str) -> tuple[str, str]:
        return f'heedful.load("{folder}").predict("…")', "It is a toy."


def collate(examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer) -> LastTokens:
    start = tokenizer.specials.start
    ids = [[start, *tokenizer.encode(example.texts[0])] for example in examples]
    longest = max(map(len, ids))
    rows = torch.tensor([[*row, *[start] * (longest - len(row))] for row in ids])
    last = torch.tensor([len(row) - 1 for row in ids])
    return LastTokens(rows, last, torch.tensor([labels.index(example.labels[0]) for example in examples]))


def label_logits(model: SequenceModel, batch: LastTokens, system: System, labels: Sequence[str]) -> Tensor:
    """(rows, labels). The model is causal, so padding after a text does not change it."""
    columns = [system.target_tokenizer.encode(label)[0] for label in labels]
    logits = model.forced_logits(None, None, batch.tokens.to(system.device))  # (rows, time, vocab)
    return logits[torch.arange(len(batch.last)), batch.last.to(system.device)][:, columns].float()


def label_losses(model: SequenceModel, batch: LastTokens, system: System, labels: Sequence[str]) -> Tensor:
    """-log p of each label, (rows,)."""
    return functional.cross_entropy(
        label_logits(model, batch, system, labels), batch.labels.to(system.device), reduction="none"
    )


@torch.inference_mode()
def evaluate(model: SequenceModel, system: System, examples: Sequence[Example], labels: Sequence[str]) -> dict[str, float]:
    batch = collate(examples, labels, system.target_tokenizer)
    logits = label_logits(model, batch, system, labels).cpu()
    loss, correct = functional.cross_entropy(logits, batch.labels), (logits.argmax(-1) == batch.labels).float().mean()
    return {"loss": float(loss), "accuracy": float(correct)}


class ReverseLabelTask:
    def __init__(self, run: RunConfig, corpora: Splits, system: System) -> None:
        self.config: ReverseLabelConfig = run.task
        self.data: LabeledConfig = run.data
        self.seed, self.corpora, self.system = run.seed, corpora, system

    def statistics(self) -> dict[str, float]:
        return {"examples": len(self.corpora.train), "batches_per_epoch": len(self.plan(0)), "tokens_per_epoch": 0}

    def describe(self) -> str:
        return f"{len(self.corpora.train):,} examples"

    def plan(self, epoch: int) -> list[NDArray[np.int64]]:
        order = np.random.Generator(np.random.Philox(key=[self.seed, epoch])).permutation(len(self.corpora.train))
        return [order[at : at + self.data.batch] for at in range(0, len(order), self.data.batch)]

    def stream(self, epoch: int, cursor: int) -> Generator[StreamedBatch, None, None]:
        def batch(chosen: NDArray[np.int64], epoch: int) -> LastTokens:
            examples = [self.corpora.train[i] for i in chosen]
            return collate(examples, self.config.labels, self.system.target_tokenizer)

        position = StreamPosition(epoch, cursor)
        return stream_batches(self.plan, batch, position, device=self.system.device, ahead=self.data.prefetch)

    def count(self, batch: LastTokens) -> int:
        return len(batch.labels)

    def split(self, batch: LastTokens, parts: int) -> Sequence[LastTokens]:
        return [LastTokens(*part) for part in zip(*(tensor.chunk(parts) for tensor in batch), strict=True)]

    def loss(self, model: SequenceModel, batch: LastTokens) -> Objective:
        total = label_losses(model, batch, self.system, self.config.labels).sum()
        count = torch.tensor(len(batch.labels), device=total.device)
        return Objective(Loss(total, count), {"loss": Loss(total.detach(), count)})

    def validate(self, model: SequenceModel) -> Validation:
        return Validation(evaluate(model, self.system, self.corpora.valid, self.config.labels), {}, [])


class ReversedLabel(NamedTuple):
    source: str
    text: str

    def rows(self) -> list[str]:
        return [self.text]

    def to_dict(self) -> dict[str, Any]:
        return {"text": self.source, "reversed_label": self.text}


class LabelReverser(Predictor):
    """A trained model of the toy task."""

    def predictions(self, texts: Iterable[str], **options: Any) -> Iterator[ReversedLabel]:
        upper, first = options.pop("upper", False), options.pop("first", 1)
        if options:
            raise ConfigError(f"given {next(iter(options))!r}, expected no option but 'upper'")
        for number, text in enumerate(texts, start=first):
            refuse_too_long(text, f"text {number}")
            yield self.reverse(text, upper)

    def predict_chunks(
        self,
        chunks: Iterable[Sequence[str]],
        config: SearchConfig,
        options: Any,
        unknown: dict[str, int],
        first: int = 1,
    ) -> Iterator[ReversedLabel]:
        lines = chain.from_iterable(note_unknown_in_chunks(chunks, self.system.target_tokenizer, unknown, first))
        return self.predictions(lines, upper=options.upper, first=first)

    @torch.inference_mode()
    def reverse(self, text: str, upper: bool) -> ReversedLabel:
        labels = self.run.task.labels
        batch = collate([Example(labels[:1], (text,))], labels, self.system.target_tokenizer)
        best = labels[int(label_logits(self.model, batch, self.system, labels).argmax())][::-1]
        return ReversedLabel(text, best.upper() if upper else best)

    def report(self, split: str | None, options: Any, *, load: Loader, search: Searcher) -> Figures:
        return Figures(split or "test", self.figures(split or "test", options.first))

    def figures(self, split: str, count: int | None) -> dict[str, float]:
        check_split(self.run.data, split)
        examples = ReverseLabelData(self.run).examples(split)[:count]
        return evaluate(self.model, self.system, examples, self.run.task.labels)

    def validate(self) -> ValidationResult:
        return ValidationResult(self.figures("valid", None), None, None, {})

    def training_losses(self, count: int) -> Iterator[Callable[[], Tensor]]:
        labels, examples = self.run.task.labels, ReverseLabelData(self.run).examples("train")[:count]
        batch = collate(examples, labels, self.system.target_tokenizer)
        yield partial(label_losses, self.model, batch, self.system, labels)


def format_examples(examples: Iterable[Any]) -> ExampleFile:
    """(label, text) pairs as lines of a table."""
    rows = []
    for number, example in enumerate(examples, start=1):
        if not isinstance(example, tuple) or not all(isinstance(cell, str) for cell in example):
            raise DataError(f"example {number} is {example!r:.60}; expected a pair of texts, (label, text)")
        rows.append("\t".join(example) + "\n")
    return ExampleFile(".tsv", "".join(rows), "file")


STARTER = Starter(
    """\
[task]
name = "reverse_label"
labels = ["short", "long"]

[data]
form = "labeled"
train = { file = "examples.tsv" }
valid = { file = "examples.tsv" }
test = { file = "examples.tsv" }

[tokenizer]
kind = "words"

[model]
family = "gpt"
dim = 16
layers = 1
heads = 2
""",
    {"examples.tsv": "short\ta short word\nlong\ta much longer word\n" * 10},
    "a word",
)

TASK = TaskDefinition(
    ReverseLabelConfig, LabeledConfig, ReverseLabelData, ReverseLabelTask, LabelReverser, format_examples, STARTER
)
