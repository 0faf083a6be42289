"""Fine-tuning a language model to choose (GPT-1: Radford et al., 2018): every task becomes sequences that it can read, and
one linear map of what it thinks at the last token decides.

    classification   [start text extract]
    entailment       [start premise delimiter hypothesis extract]
    similarity       [start a delimiter b extract] and [start b delimiter a extract], what it thinks of both added
    choice           [start context delimiter answer extract] for every answer; the highest score wins

    loss = task + auxiliary x language model

Start, the end of a line as delimiter, and padding as extract are tokens that the vocabulary has; the first and the last
stand in no text, so they mean nothing yet.
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

from heedful.data.labeled import Example, LabeledConfig, find_split_file, read_examples
from heedful.data.report import Notes
from heedful.data.sources import refuse_streams
from heedful.errors import DataError
from heedful.nn.dropout import Dropout
from heedful.nn.losses import Loss
from heedful.schema import Config, NonNegativeNumber, Probability, Problem, refuse
from heedful.search import SearchConfig
from heedful.tasks.batch_stream import Place, feed
from heedful.tasks.objectives import token_loss
from heedful.tasks.translate import System
from heedful.text.specials import Specials
from heedful.text.tokenizer import Tokenizer
from heedful.training.loop import StreamedBatch, Validation
from heedful.training.train_state import Direction
from heedful.training.update import Objective

# What is read of a text at most: its tokens are cut off at data.max_length anyway, and no vocabulary has longer ones.
MAX_CHARACTERS, CHARACTERS_PER_TOKEN = 100_000, 100
ENCODED = 256  # texts encoded at a time

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
COLUMNS = {"classification": (1, 1), "entailment": (2, 2), "similarity": (2, 2), "choice": (3, 1000)}  # least, most


def batched(texts: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (texts[at : at + size] for at in range(0, len(texts), size))


class ClassificationConfig(Config):
    form: ClassVar[str] = "labeled"  # of the data
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
    """A language model with a head."""

    def __init__(self, body: Any, choices: int, dropout: float) -> None:
        super().__init__()
        self.body = body
        self.dropout = Dropout(dropout)
        self.head = nn.Linear(body.config.dim, choices)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    def forward(self, tokens: Tensor, last: Tensor, group: int) -> tuple[Tensor, Tensor]:
        """tokens (examples x group, time), last (examples x group,): where each sequence ends
        -> logits (examples, choices), hidden (examples x group, time, dim)."""
        hidden: Tensor = self.body.step(tokens, self.body.start(tokens[:, :0], None, room=0)).hidden
        thought = self.dropout(hidden[torch.arange(len(tokens), device=tokens.device), last])
        thought = thought.view(-1, group, thought.shape[-1])  # (examples, group, dim)
        if self.head.out_features == 1:
            return self.head(thought).squeeze(-1), hidden  # a score for each answer
        return self.head(thought.sum(1)), hidden

    def blocks(self) -> list[nn.Module]:
        found: list[nn.Module] = self.body.blocks()
        return found


class LabeledBatch(NamedTuple):
    tokens: Tensor  # (examples x group, time)
    last: Tensor  # (examples x group,)
    labels: Tensor  # (examples,)

    def pin(self) -> LabeledBatch:
        return LabeledBatch(*(tensor.pin_memory() for tensor in self))

    def to(self, device: torch.device) -> LabeledBatch:
        return LabeledBatch(*(tensor.to(device, non_blocking=True) for tensor in self))


class Encoded(NamedTuple):
    groups: list[list[Ids]]  # the sequences of each example
    labels: list[int]


class Splits(NamedTuple):
    train: Encoded
    valid: Encoded


class ClassificationTask:
    def __init__(self, config: ClassificationConfig, data: LabeledConfig, search: SearchConfig, seed: int) -> None:
        self.config, self.data, self.seed = config, data, seed

    def check(self) -> Notes:
        refuse_streams(self.files())
        found = []
        for split in ("train", "valid", "test"):
            path = find_split_file(self.data, split)
            if path is not None:
                examples = self.examples(path)
                counts = [f"{label}: {sum(one.label == label for one in examples):,}" for label in self.config.labels]
                found.append(f"{split}: {path}, {len(examples):,} examples ({', '.join(counts)})")
        return Notes(found)

    def files(self) -> list[Path]:
        return [path for split in ("train", "valid", "test") if (path := find_split_file(self.data, split)) is not None]

    def examples(self, path: Path) -> list[Example]:
        least, most = COLUMNS[self.config.layout]
        if not least <= len(self.data.texts) <= most:
            wanted = f"{least}" if least == most else f"{least} or more"
            raise DataError(f"layout {self.config.layout!r} needs {wanted} columns in data.texts, not {len(self.data.texts)}")
        return read_examples(self.data, path, self.config.labels)

    def lines(self, side: Literal["source", "target"]) -> Iterator[str]:
        """What the vocabulary is learned from, unless the run begins with another's."""
        path = find_split_file(self.data, "train")
        assert path is not None, "there is always something to train on"
        for one in self.examples(path) if side == "target" else ():
            yield from one.texts

    @property
    def tags(self) -> list[str]:
        return []

    def equip(self, model: nn.Module) -> nn.Module:
        """The model that is trained: the given one, with a head."""
        return ClassificationModel(
            model, 1 if self.config.layout == "choice" else len(self.config.labels), self.config.head_dropout
        )

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer) -> Encoded:
        width = len(self.data.texts)
        characters = max(MAX_CHARACTERS, CHARACTERS_PER_TOKEN * self.data.max_length)
        texts = [text[:characters] for one in examples for text in one.texts]
        ids = [row for some in batched(texts, ENCODED) for row in tokenizer.encode_many(some)]
        layout, most = LAYOUTS[self.config.layout], self.data.max_length
        groups = []
        for at in range(0, len(ids), width):
            sequences = layout(ids[at : at + width], tokenizer.specials)
            groups.append([[*one[: most - 1], one[-1]] if len(one) > most else one for one in sequences])
        return Encoded(groups, [self.config.labels.index(one.label) for one in examples])

    def open_corpora(self, tokenizers: tuple[Tokenizer, Tokenizer], report: Notes, *, keep_text: bool) -> Splits:
        train, valid = (find_split_file(self.data, split) for split in ("train", "valid"))
        assert train is not None and valid is not None, "the config has seen to it"
        examples = self.examples(train)
        if self.data.limit:
            order = np.random.Generator(np.random.Philox(key=[self.seed, 2**40])).permutation(len(examples))
            examples = [examples[i] for i in order[: self.data.limit]]
        return Splits(self.encode(examples, tokenizers[1]), self.encode(self.examples(valid), tokenizers[1]))

    def bind(self, corpora: Splits, system: System, dropout: float = 0.0) -> ClassificationTask:
        self.corpora, self.system = corpora, system
        return self

    def facts(self) -> dict[str, float]:
        train, plan = self.corpora.train, self.plan(0)
        tokens = sum(len(sequence) for group in train.groups for sequence in group)
        return {"examples": len(train.labels), "batches_per_epoch": len(plan), "tokens_per_epoch": tokens}

    def describe(self) -> str:
        facts = self.facts()
        return f"{facts['examples']:,} examples in {facts['batches_per_epoch']:,} batches an epoch"

    def plan(self, epoch: int) -> list[NDArray[np.int64]]:
        """The examples of each batch: a pure function of the seed and the epoch."""
        order = np.random.Generator(np.random.Philox(key=[self.seed, epoch])).permutation(len(self.corpora.train.labels))
        return [order[at : at + self.data.batch] for at in range(0, len(order), self.data.batch)]

    def stream(self, epoch: int, cursor: int) -> Generator[StreamedBatch, None, None]:
        """Batches without end, from the given place on, prepared ahead of need."""

        def collate(chosen: NDArray[np.int64], epoch: int) -> LabeledBatch:
            return self.collate(self.corpora.train, chosen.tolist())

        return feed(self.plan, collate, Place(epoch, cursor), device=self.system.device, ahead=self.data.prefetch)

    def collate(self, encoded: Encoded, chosen: Sequence[int]) -> LabeledBatch:
        rows = [sequence for i in chosen for sequence in encoded.groups[i]]
        longest = -(-max(map(len, rows)) // self.data.pad_to_multiple_of) * self.data.pad_to_multiple_of
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
        """The loss as a function of tensors alone, which can be compiled and captured."""
        logits, hidden = model(tokens, last, len(tokens) // len(labels))
        total = functional.cross_entropy(logits.float(), labels, reduction="sum")
        count = labels.new_full((), len(labels))
        report = {"loss": Loss(total.detach(), count)}
        if self.config.auxiliary:
            pad = self.system.target_tokenizer.specials.pad  # the extract token is not said, nor is what follows it
            said = tokens[:, 1:].flatten()
            minimized, language = token_loss(model.body, hidden[:, :-1].flatten(0, 1), said, padding=pad)
            total = total + self.config.auxiliary * minimized.total / minimized.count * len(labels)
            report["language"] = language
        return Objective(Loss(total, count), report)

    @torch.inference_mode()
    def evaluate(self, model: ClassificationModel, encoded: Encoded) -> dict[str, float]:
        loss, right = 0.0, 0
        order = sorted(range(len(encoded.labels)), key=lambda i: max(map(len, encoded.groups[i])))
        for at in range(0, len(order), 64):
            batch = self.collate(encoded, order[at : at + 64]).to(self.system.device)
            logits = model(batch.tokens, batch.last, len(batch.tokens) // len(batch.labels))[0].float()
            loss += float(functional.cross_entropy(logits, batch.labels, reduction="sum"))
            right += int((logits.argmax(-1) == batch.labels).sum())
        if not math.isfinite(loss):
            raise self.system.not_finite("some example")
        return {"loss": loss / len(order), "accuracy": right / len(order)}

    def validate(self, model: Any) -> Validation:
        return Validation(self.evaluate(model, self.corpora.valid), {}, [])

    def advice(self, folder: str) -> tuple[str, str]:
        usage = f'chooser = heedful.load("{folder}")\nchooser.choose([("…",)])'
        return usage, f"It reads at most {self.data.max_length} tokens of a text, and knows no answer but its labels."
