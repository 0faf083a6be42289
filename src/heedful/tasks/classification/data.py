"""The data of classification: every example becomes token sequences (GPT-1: Radford et al., 2018).

    classification   [start text extract]
    entailment       [start premise delimiter hypothesis extract]
    similarity       [start a delimiter b extract] and [start b delimiter a extract], hidden states added
    choice           [start context delimiter answer extract] for every answer; the highest score wins

The start token, the end of a line as delimiter, and padding as extract are in the vocabulary already; the first and the last
appear in no text, so that fine-tuning learns their meaning.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from heedful.data.labeled import Example, LabeledConfig, LabeledFile, check_examples, find_split_file, read_examples
from heedful.data.report import CheckReport
from heedful.data.sources import refuse_streams
from heedful.errors import DataError
from heedful.tasks.base import ExampleFile, RunConfig, Tokenizers
from heedful.tasks.batches import pad_length
from heedful.tasks.classification.config import ClassificationConfig
from heedful.text.specials import Specials
from heedful.text.tokenizer import Tokenizer

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


class LabeledData:
    def __init__(self, run: RunConfig) -> None:
        self.config: ClassificationConfig = run.task
        self.data: LabeledConfig = run.data
        self.seed = run.seed

    def check(self) -> CheckReport:
        """Read every file once; report the unusable lines and the number of examples of each label."""
        refuse_streams(self.files())
        fewest, most = COLUMNS[self.config.layout]
        if not fewest <= len(self.data.texts) <= most:
            expected = f"{fewest}" if fewest == most else f"{fewest} or more"
            raise DataError(f"layout {self.config.layout!r} needs {expected} columns in data.texts, not {len(self.data.texts)}")
        files = ((split, find_split_file(self.data, split)) for split in ("train", "valid", "test"))
        checks = (check_examples(self.data, split, file, self.config.labels) for split, file in files if file is not None)
        return CheckReport(tuple(checks))

    def files(self) -> list[Path]:
        found = (find_split_file(self.data, split) for split in ("train", "valid", "test"))
        return list(dict.fromkeys(file.path for file in found if file is not None))

    def examples(self, file: LabeledFile) -> list[Example]:
        """Read the usable examples of a file; labels that the config does not list are an error."""
        return read_examples(self.data, file, self.config.labels)

    def lines(self, side: Literal["source", "target"]) -> Iterator[str]:
        """The lines that the tokenizer is trained on, unless training.init provides one."""
        file = find_split_file(self.data, "train")
        assert file is not None, "a run has training data"
        for example in self.examples(file) if side == "target" else ():
            yield from example.texts

    @property
    def tags(self) -> list[str]:
        return []

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
        return EncodedExamples(groups, [self.config.labels.index(example.labels[0]) for example in examples])

    def collate(self, encoded: EncodedExamples, chosen: Sequence[int], pad: int) -> LabeledBatch:
        """The batch of the chosen examples."""
        rows = [sequence for i in chosen for sequence in encoded.groups[i]]
        longest = pad_length(max(map(len, rows)), self.data.length_multiple, self.data.max_length)
        tokens = torch.tensor([[*row, *[pad] * (longest - len(row))] for row in rows])
        return LabeledBatch(
            tokens, torch.tensor([len(row) - 1 for row in rows]), torch.tensor([encoded.labels[i] for i in chosen])
        )

    def prepare(self, tokenizers: Tokenizers, report: CheckReport) -> EncodedSplits:
        train, valid = (find_split_file(self.data, split) for split in ("train", "valid"))
        assert train is not None and valid is not None, "the config requires both"
        examples = self.examples(train)
        if self.data.limit:
            order = np.random.Generator(np.random.Philox(key=[self.seed, 2**40])).permutation(len(examples))
            examples = [examples[i] for i in order[: self.data.limit]]
        return EncodedSplits(self.encode(examples, tokenizers[1]), self.encode(self.examples(valid), tokenizers[1]))

    def usage_and_limits(self, folder: str) -> tuple[str, str]:
        """A usage example and the limits of the model, for its card."""
        usage = f'classifier = heedful.load("{folder}")\nclassifier.predict("…")'
        return (
            usage,
            f"Texts are truncated to {self.data.max_length} tokens, and only the labels of the training data are predicted.",
        )


def format_examples(examples: Iterable[Any]) -> ExampleFile:
    """(label, text, …) tuples as lines of JSON; a label may be a list of labels."""
    rows, width = [], 0
    for number, example in enumerate(examples, start=1):
        cells = list(example) if isinstance(example, tuple | list) else [example]
        label, *texts = cells
        if not texts or not is_label(label) or not all(isinstance(text, str) and text.strip() for text in texts):
            raise DataError(f"example {number} is {example!r:.60}; expected a tuple of texts, (label, text)")
        if width not in (0, len(texts)):
            raise DataError(f"example {number} has {len(texts)} texts; expected {width}, as many as the others")
        width = len(texts)
        row = {"label": label} | {f"text{column}": text for column, text in enumerate(texts, start=1)}
        rows.append(json.dumps(row, ensure_ascii=False))
    columns = {"label": "label", "texts": [f"text{column}" for column in range(1, width + 1)]}
    return ExampleFile(".jsonl", "".join(f"{row}\n" for row in rows), "file", data=columns | {"split": [1.0, 0.0, 0.0]})


def is_label(value: Any) -> bool:
    parts = value if isinstance(value, list) else [value]
    return all(isinstance(part, str) and part.strip() for part in parts)
