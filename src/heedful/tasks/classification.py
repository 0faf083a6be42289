"""Classification by fine-tuning a language model (GPT-1: Radford et al., 2018): every example becomes token sequences, and a
linear layer classifies the hidden state of the last token.

    classification   [start text extract]
    entailment       [start premise delimiter hypothesis extract]
    similarity       [start a delimiter b extract] and [start b delimiter a extract], hidden states added
    choice           [start context delimiter answer extract] for every answer; the highest score wins

    loss = classification loss + auxiliary x language modeling loss

The start token, the end of a line as delimiter, and padding as extract are in the vocabulary already; the first and the last
appear in no text, so that fine-tuning learns their meaning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from heedful.config.base import Config, NonNegativeNumber, Probability, Problem, refuse
from heedful.data.labeled import Example, LabeledConfig, find_split_file, read_examples
from heedful.data.report import Notes
from heedful.data.sources import refuse_streams
from heedful.errors import DataError
from heedful.nn.dropout import Dropout
from heedful.nn.losses import Loss
from heedful.search import SearchConfig
from heedful.tasks.batch_stream import StreamPosition, stream_batches
from heedful.tasks.batches import pad_length
from heedful.tasks.objectives import token_loss
from heedful.tasks.translate import System
from heedful.text.specials import Specials
from heedful.text.tokenizer import Tokenizer
from heedful.training.loop import StreamedBatch, Validation
from heedful.training.train_state import Direction
from heedful.training.update import Objective

# Characters of a text that are tokenized at most: tokens are truncated at data.max_length anyway.
MAX_CHARACTERS, CHARACTERS_PER_TOKEN = 100_000, 100
ENCODE_BATCH = 256  # texts encoded at a time

Ids = list[int]
Layout = Callable[[Sequence[Ids], Specials], list[Ids]]


def one_text(texts: Sequence[Ids], marks: Specials) -> list[Ids]:
    return [[marks.start, *texts[0], marks.pad]]


def premise_and_hypothesis(texts: Sequence[Ids], marks: Specials) -> list[Ids]:
    return [[marks.start, *texts[0], marks.end, *texts[1], marks.pad]]


def both_orders(texts: Sequence[Ids], marks: Specials) -> list[Ids]:
    return [*premise_and_hypothesis(texts, marks), *premise_and_hypothesis(texts[::-1], marks)]


def every_answer(texts: Sequence[Ids], marks: Specials) -> list[Ids]:
    return [sequence for answer in texts[1:] for sequence in premise_and_hypothesis([texts[0], answer], marks)]


LAYOUTS: dict[str, Layout] = {
    "classification": one_text,
    "entailment": premise_and_hypothesis,
    "similarity": both_orders,
    "choice": every_answer,
}
COLUMNS = {
    "classification": (1, 1),
    "entailment": (2, 2),
    "similarity": (2, 2),
    "choice": (3, 1000),
}  # data.texts: minimum, maximum


def split_texts(texts: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (texts[at : at + size] for at in range(0, len(texts), size))


class ClassificationConfig(Config):
    form: ClassVar[str] = "labeled"  # required data.form
    unit: ClassVar[str] = "examples"
    metrics: ClassVar[Mapping[str, Direction]] = {"loss": "lower", "accuracy": "higher"}
    name: Literal["classification"]
    """Task."""
    layout: Literal["classification", "entailment", "similarity", "choice"] = "classification"
    """How texts become sequences."""
    labels: tuple[str, ...]
    """The labels as in the data; for "choice", the label of the first answer, the second, …."""
    auxiliary: NonNegativeNumber = 0.5
    """Weight of the language modeling loss; 0: none."""
    head_dropout: Probability = 0.1
    """Dropout before the classifier."""

    def model_post_init(self, context: Any) -> None:
        if len(set(self.labels)) != len(self.labels) or len(self.labels) < 2:
            refuse([Problem("labels", f"given {list(self.labels)!r}, expected two or more that differ")])


class ClassificationModel(nn.Module):
    """A language model with a classification head."""

    def __init__(self, body: Any, choices: int, dropout: float) -> None:
        super().__init__()
        self.body = body
        self.dropout = Dropout(dropout)
        self.head = nn.Linear(body.config.dim, choices)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    def forward(self, tokens: Tensor, last: Tensor, group: int) -> tuple[Tensor, Tensor]:
        """tokens (examples x group, time), last (examples x group,): index of each sequence's last token
        -> logits (examples, choices), hidden (examples x group, time, dim)."""
        hidden: Tensor = self.body.step(tokens, self.body.start(tokens[:, :0], None, room=0)).hidden
        features = self.dropout(hidden[torch.arange(len(tokens), device=tokens.device), last])
        features = features.view(-1, group, features.shape[-1])  # (examples, group, dim)
        if self.head.out_features == 1:
            return self.head(features).squeeze(-1), hidden  # a score for each answer
        return self.head(features.sum(1)), hidden

    def blocks(self) -> list[nn.Module]:
        blocks: list[nn.Module] = self.body.blocks()
        return blocks


class LabeledBatch(NamedTuple):
    tokens: Tensor  # (examples x group, time)
    last: Tensor  # (examples x group,)
    labels: Tensor  # (examples,)

    def pin(self) -> LabeledBatch:
        return LabeledBatch(*(tensor.pin_memory() for tensor in self))

    def to(self, device: torch.device) -> LabeledBatch:
        return LabeledBatch(*(tensor.to(device, non_blocking=True) for tensor in self))


class EncodedExamples(NamedTuple):
    groups: list[list[Ids]]  # the sequences of each example
    labels: list[int]


class EncodedSplits(NamedTuple):
    train: EncodedExamples
    valid: EncodedExamples


class ClassificationTask:
    def __init__(self, config: ClassificationConfig, data: LabeledConfig, search: SearchConfig, seed: int) -> None:
        self.config, self.data, self.seed = config, data, seed

    def check(self) -> Notes:
        """Read every file once and count the examples of each label."""
        refuse_streams(self.files())
        notes = []
        for split in ("train", "valid", "test"):
            path = find_split_file(self.data, split)
            if path is not None:
                examples = self.examples(path)
                counts = [f"{label}: {sum(example.label == label for example in examples):,}" for label in self.config.labels]
                notes.append(f"{split}: {path}, {len(examples):,} examples ({', '.join(counts)})")
        return Notes(notes)

    def files(self) -> list[Path]:
        return [path for split in ("train", "valid", "test") if (path := find_split_file(self.data, split)) is not None]

    def examples(self, path: Path) -> list[Example]:
        """Read the examples of a file; labels that the config does not list are an error."""
        fewest, most = COLUMNS[self.config.layout]
        if not fewest <= len(self.data.texts) <= most:
            expected = f"{fewest}" if fewest == most else f"{fewest} or more"
            raise DataError(f"layout {self.config.layout!r} needs {expected} columns in data.texts, not {len(self.data.texts)}")
        return read_examples(self.data, path, self.config.labels)

    def lines(self, side: Literal["source", "target"]) -> Iterator[str]:
        """The lines that the tokenizer is trained on, unless training.init provides one."""
        path = find_split_file(self.data, "train")
        assert path is not None, "a run has training data"
        for example in self.examples(path) if side == "target" else ():
            yield from example.texts

    @property
    def tags(self) -> list[str]:
        return []

    def prepare_model(self, model: nn.Module) -> nn.Module:
        """The model to train: the given one with a classification head."""
        return ClassificationModel(
            model, 1 if self.config.layout == "choice" else len(self.config.labels), self.config.head_dropout
        )

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer) -> EncodedExamples:
        width = len(self.data.texts)
        characters = max(MAX_CHARACTERS, CHARACTERS_PER_TOKEN * self.data.max_length)
        texts = [text[:characters] for example in examples for text in example.texts]
        ids = [row for part in split_texts(texts, ENCODE_BATCH) for row in tokenizer.encode_many(part)]
        layout, most = LAYOUTS[self.config.layout], self.data.max_length
        groups = []
        for at in range(0, len(ids), width):
            sequences = layout(ids[at : at + width], tokenizer.specials)
            groups.append([[*row[: most - 1], row[-1]] if len(row) > most else row for row in sequences])
        return EncodedExamples(groups, [self.config.labels.index(example.label) for example in examples])

    def open_corpora(self, tokenizers: tuple[Tokenizer, Tokenizer], report: Notes, *, keep_text: bool) -> EncodedSplits:
        train, valid = (find_split_file(self.data, split) for split in ("train", "valid"))
        assert train is not None and valid is not None, "the config requires both"
        examples = self.examples(train)
        if self.data.limit:
            order = np.random.Generator(np.random.Philox(key=[self.seed, 2**40])).permutation(len(examples))
            examples = [examples[i] for i in order[: self.data.limit]]
        return EncodedSplits(self.encode(examples, tokenizers[1]), self.encode(self.examples(valid), tokenizers[1]))

    def bind(self, corpora: EncodedSplits, system: System, dropout: float = 0.0) -> ClassificationTask:
        self.corpora, self.system = corpora, system
        return self

    def statistics(self) -> dict[str, float]:
        """Sizes of the training data and of an epoch."""
        train, plan = self.corpora.train, self.plan(0)
        tokens = sum(len(sequence) for group in train.groups for sequence in group)
        return {"examples": len(train.labels), "batches_per_epoch": len(plan), "tokens_per_epoch": tokens}

    def describe(self) -> str:
        sizes = self.statistics()
        return f"{sizes['examples']:,} examples in {sizes['batches_per_epoch']:,} batches per epoch"

    def plan(self, epoch: int) -> list[NDArray[np.int64]]:
        """The examples of each batch: a pure function of the seed and the epoch."""
        order = np.random.Generator(np.random.Philox(key=[self.seed, epoch])).permutation(len(self.corpora.train.labels))
        return [order[at : at + self.data.batch] for at in range(0, len(order), self.data.batch)]

    def stream(self, epoch: int, cursor: int) -> Generator[StreamedBatch, None, None]:
        """An endless stream of batches from the given position, prefetched."""

        def collate(chosen: NDArray[np.int64], epoch: int) -> LabeledBatch:
            return self.collate(self.corpora.train, chosen.tolist())

        return stream_batches(
            self.plan, collate, StreamPosition(epoch, cursor), device=self.system.device, ahead=self.data.prefetch
        )

    def collate(self, encoded: EncodedExamples, chosen: Sequence[int]) -> LabeledBatch:
        rows = [sequence for i in chosen for sequence in encoded.groups[i]]
        longest = pad_length(max(map(len, rows)), self.data.length_multiple, self.data.max_length)
        pad = self.system.target_tokenizer.specials.pad
        tokens = torch.tensor([[*row, *[pad] * (longest - len(row))] for row in rows])
        return LabeledBatch(
            tokens, torch.tensor([len(row) - 1 for row in rows]), torch.tensor([encoded.labels[i] for i in chosen])
        )

    def count(self, batch: LabeledBatch) -> int:
        return len(batch.labels)

    def split(self, batch: LabeledBatch, parts: int) -> Sequence[LabeledBatch]:
        group = len(batch.tokens) // len(batch.labels)
        cuts = torch.arange(len(batch.labels)).chunk(parts)
        sides = [(int(cut[0]), int(cut[-1]) + 1) for cut in cuts]
        tokens, last, labels = batch
        return [LabeledBatch(tokens[a * group : b * group], last[a * group : b * group], labels[a:b]) for a, b in sides]

    def loss(self, model: ClassificationModel, batch: LabeledBatch) -> Objective:
        return self.objective(model, *batch.to(self.system.device))

    def objective(self, model: ClassificationModel, tokens: Tensor, last: Tensor, labels: Tensor) -> Objective:
        """The loss as a function of tensors only, which can be compiled or captured."""
        logits, hidden = model(tokens, last, len(tokens) // len(labels))
        total = functional.cross_entropy(logits.float(), labels, reduction="sum")
        count = labels.new_full((), len(labels))
        report = {"loss": Loss(total.detach(), count)}
        if self.config.auxiliary:
            pad = self.system.target_tokenizer.specials.pad  # the extract token is not predicted, nor is padding
            targets = tokens[:, 1:].flatten()
            smoothed, language = token_loss(model.body, hidden[:, :-1].flatten(0, 1), targets, padding=pad)
            total = total + self.config.auxiliary * smoothed.total / smoothed.count * len(labels)
            report["language"] = language
        return Objective(Loss(total, count), report)

    @torch.inference_mode()
    def evaluate(self, model: ClassificationModel, encoded: EncodedExamples) -> dict[str, float]:
        """Mean loss and accuracy."""
        loss, correct = 0.0, 0
        order = sorted(range(len(encoded.labels)), key=lambda i: max(map(len, encoded.groups[i])))
        for at in range(0, len(order), 64):
            batch = self.collate(encoded, order[at : at + 64]).to(self.system.device)
            logits = model(batch.tokens, batch.last, len(batch.tokens) // len(batch.labels))[0].float()
            loss += float(functional.cross_entropy(logits, batch.labels, reduction="sum"))
            correct += int((logits.argmax(-1) == batch.labels).sum())
        if not math.isfinite(loss):
            raise self.system.nonfinite_error("an example")
        return {"loss": loss / len(order), "accuracy": correct / len(order)}

    def validate(self, model: Any) -> Validation:
        return Validation(self.evaluate(model, self.corpora.valid), {}, [])

    def usage_and_limits(self, folder: str) -> tuple[str, str]:
        """A usage example and the limits of the model, for its card."""
        usage = f'classifier = heedful.load("{folder}")\nclassifier.predict([("…",)])'
        return (
            usage,
            f"Texts are truncated to {self.data.max_length} tokens, and only the labels of the training data are predicted.",
        )
