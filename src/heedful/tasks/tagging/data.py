"""The data of tagging: sentences as token ids, with the position of the first token of each word.

    words      the       unhappy        cat
    tokens     <s> the   un happy       cat </s>        a word is one token or several, depending on the tokenizer
    first          1     2              4
    labels         DET   ADJ            NOUN

A sentence of more than `data.max_length` tokens is cut between words into parts, which are labeled separately. A model
with characters also reads the spelling of each word (`spelling.py`). Numeric sequences have no start and end: every vector is a
word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from heedful.data.report import CheckReport
from heedful.data.sources import refuse_streams
from heedful.data.splits import SPLITS
from heedful.data.tagged import (
    TaggedConfig,
    TaggedSentence,
    TaggedSource,
    check_sentences,
    collect_labels,
    find_split_file,
    parse_numbers,
    read_sentences,
    refuse_invalid_bio,
    refuse_other_sizes,
    refuse_unknown_label,
)
from heedful.data.toys import ToySplit
from heedful.errors import ConfigError, DataError
from heedful.evaluation.spans import is_bio
from heedful.tasks.base import ExampleFile, RunConfig, Tokenizers
from heedful.tasks.batches import pad_length
from heedful.tasks.spelling import NO_SPELLING, encode_distinct, spell, used_bytes
from heedful.tasks.tagging.config import TaggingConfig
from heedful.tasks.tagging.model import PADDING
from heedful.text.tokenizer import Tokenizer


class TagRow(NamedTuple):
    """A sentence, or a part of a long one."""

    sentence: int  # index of the sentence
    tokens: Tensor  # (time,), of numeric data (time, features)
    first: Tensor  # (words,)
    labels: Tensor  # (words,); PADDING: unknown
    spelling: Tensor  # (time, BYTES), or (time, 0) if the model reads none


class TagBatch(NamedTuple):
    tokens: Tensor  # (rows, time), of numeric data (rows, time, features)
    mask: Tensor  # (rows, time), True for real tokens
    first: Tensor  # (rows, time), the first positions, as many as there are words, then 0
    labels: Tensor  # (rows, time), as first, then PADDING
    spelling: Tensor  # (rows, time, bytes)

    def pin(self) -> TagBatch:
        return TagBatch(*(tensor.pin_memory() for tensor in self))

    def to(self, device: torch.device) -> TagBatch:
        return TagBatch(*(tensor.to(device, non_blocking=True) for tensor in self))


class TaggedSplits(NamedTuple):
    train: list[TagRow]
    valid: list[TagRow]


class TaggedData:
    def __init__(self, run: RunConfig) -> None:
        self.config: TaggingConfig = run.task
        self.data: TaggedConfig = run.data
        self.reads_spelling, self.features = run.model.reads_spelling, run.model.numeric_inputs

    def check(self) -> CheckReport:
        """Read every file once; report the unusable lines and the number of words of each label."""
        refuse_streams(self.files())
        labels = self.config.labels
        if labels == "auto":
            labels = collect_labels(read_sentences(self.data, self.file("train")))
        check = partial(self.refuse, labels)
        found = ((split, find_split_file(self.data, split)) for split in SPLITS)
        return CheckReport(tuple(check_sentences(self.data, split, file, check) for split, file in found if file is not None))

    def refuse(self, labels: Sequence[str], path: Path | ToySplit, sentences: Sequence[TaggedSentence]) -> None:
        """Raise an error for unknown labels, for labels in BIO that are not valid if there is a CRF, and for vectors of another
        size than model.features."""
        refuse_unknown_label(path, sentences, labels)
        if self.config.crf and is_bio(labels):
            refuse_invalid_bio(path, sentences)
        if self.features:
            refuse_other_sizes(path, sentences, self.features)

    def files(self) -> list[Path]:
        found = [file.path for split in SPLITS if (file := find_split_file(self.data, split)) is not None]
        return list(dict.fromkeys(path for path in found if isinstance(path, Path)))

    def file(self, split: str) -> TaggedSource:
        file = find_split_file(self.data, split)
        assert file is not None, "the config requires training and validation data"
        return file

    def sentences(self, file: TaggedSource) -> list[TaggedSentence]:
        """Read the usable sentences of a file; errors as in `refuse`."""
        sentences = read_sentences(self.data, file)
        self.refuse(self.config.known_labels, file.path, sentences)
        return sentences

    def lines(self, side: Literal["source", "target"]) -> Iterator[str]:
        """The sentences that the tokenizer is trained on; numeric data has no text, and a vocabulary of its labels."""
        for sentence in read_sentences(self.data, self.file("train")) if side == "target" else ():
            yield " ".join(sentence.labels if self.features else sentence.words)

    @property
    def tags(self) -> list[str]:
        return []

    def prepare(self, tokenizers: Tokenizers, report: CheckReport) -> TaggedSplits:
        return TaggedSplits(*(self.encode(self.sentences(self.file(split)), tokenizers[1]) for split in ("train", "valid")))

    def encode(self, sentences: Sequence[TaggedSentence], tokenizer: Tokenizer) -> list[TagRow]:
        """The rows of sentences, in order."""
        if self.features:
            return [row for at, sentence in enumerate(sentences) for row in self.numeric_rows(at, sentence)]
        pieces = encode_distinct((word for sentence in sentences for word in sentence.words), tokenizer)
        spelled = {word: spell(word) for word in pieces} if self.reads_spelling else {}
        rows = []
        for at, sentence in enumerate(sentences):
            for start, end in self.parts([len(pieces[word]) for word in sentence.words]):
                rows.append(self.text_row(at, sentence, range(start, end), pieces, spelled, tokenizer))
        return rows

    def parts(self, lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
        """The first word, and the word after the last one, of each part of a sentence; lengths: tokens of each word."""
        start, total, most = 0, 0, self.data.max_length - 2  # without start and end
        for at, length in enumerate(lengths):
            if total + min(length, most) > most:
                yield start, at
                start, total = at, 0
            total += min(length, most)
        if len(lengths) > start:
            yield start, len(lengths)

    def text_row(
        self,
        sentence: int,
        tagged: TaggedSentence,
        chosen: range,
        pieces: Mapping[str, list[int]],
        spelled: Mapping[str, list[int]],
        tokenizer: Tokenizer,
    ) -> TagRow:
        """The row of some words of a sentence; a word that is longer than a row is truncated."""
        marks, most = tokenizer.specials, self.data.max_length - 2
        tokens, first, spelling = [marks.start], [], [NO_SPELLING]
        for at in chosen:
            word = tagged.words[at]
            ids = pieces[word][:most]
            first.append(len(tokens))
            tokens += ids
            if spelled:
                spelling += [spelled[word]] * len(ids)
        tokens.append(marks.end)
        spelling.append(NO_SPELLING)
        table = torch.tensor(spelling, dtype=torch.int16) if spelled else torch.zeros(len(tokens), 0, dtype=torch.int16)
        labels = torch.tensor(self.label_ids(tagged.labels[chosen.start : chosen.stop]))
        return TagRow(sentence, torch.tensor(tokens), torch.tensor(first), labels, table)

    def numeric_rows(self, sentence: int, tagged: TaggedSentence) -> Iterator[TagRow]:
        """The rows of a sequence of vectors."""
        vectors = [parse_numbers(word, f"line {line}") for word, line in zip(tagged.words, tagged.lines, strict=True)]
        labels = self.label_ids(tagged.labels)
        for at in range(0, len(vectors), self.data.max_length):
            part = torch.tensor(vectors[at : at + self.data.max_length])  # (time, features)
            some = torch.tensor(labels[at : at + self.data.max_length])
            yield TagRow(sentence, part, torch.arange(len(part)), some, torch.zeros(len(part), 0, dtype=torch.int16))

    def label_ids(self, labels: Sequence[str]) -> list[int]:
        index = {label: at for at, label in enumerate(self.config.known_labels)}
        return [index.get(label, PADDING) for label in labels]

    def collate(self, rows: Sequence[TagRow], padding: int) -> TagBatch:
        """Pad rows. With data.pad_to_multiple_of, rows without words are added, so that few shapes occur."""
        multiple = self.data.length_multiple
        time = pad_length(max(len(row.tokens) for row in rows), multiple, self.data.max_length)
        count = max(self.data.batch_tokens // time, len(rows)) if multiple > 1 else len(rows)
        width = max(used_bytes(row.spelling) for row in rows) if multiple == 1 else rows[0].spelling.shape[1]
        vectors = rows[0].tokens.shape[1:]  # (features,), or empty
        tokens = torch.zeros(count, time, *vectors) if vectors else torch.full((count, time), padding)
        mask = torch.zeros(count, time, dtype=torch.bool)
        mask[len(rows) :, 0] = True  # a row needs at least one token to attend to
        first = torch.zeros(count, time, dtype=torch.int64)
        labels = torch.full((count, time), PADDING)
        spelling = torch.zeros(count, time, width, dtype=torch.int64)
        for at, row in enumerate(rows):
            tokens[at, : len(row.tokens)] = row.tokens
            mask[at, : len(row.tokens)] = True
            first[at, : len(row.first)] = row.first
            labels[at, : len(row.labels)] = row.labels
            spelling[at, : len(row.tokens)] = row.spelling[:, :width]
        return TagBatch(tokens, mask, first, labels, spelling)

    def usage_and_limits(self, folder: str) -> tuple[str, str]:
        """A usage example and the limits of the model, for its card."""
        example = str([[0.0] * self.features]) if self.features else '"…"'
        usage = f'tagger = heedful.load("{folder}")\nprint(next(tagger.predictions([{example}])))'
        length = f"Sentences of more than {self.data.max_length} tokens are cut into parts that are labeled separately"
        return usage, f"Words are expected to be separated by white space. {length}, and only known labels are predicted."


def resolve(run: RunConfig) -> dict[str, object]:
    """The labels of the training data, where task.labels is "auto"."""
    config: TaggingConfig = run.task
    if config.labels != "auto":
        return {}
    data = TaggedData(run)
    refuse_streams(data.files())
    file = data.file("train")
    labels, path = collect_labels(read_sentences(run.data, file)), file.path
    if len(labels) < 2:
        raise DataError(f"{path} has {len(labels)} label{'s' * (len(labels) != 1)}; expected two or more that differ")
    if run.training.metric not in config.model_copy(update={"labels": labels}).metrics:
        raise ConfigError(
            f"training.metric is {run.training.metric!r}, but the labels of {path} are not in BIO notation, O, B-… and I-…",
            hint="set training.metric to 'accuracy' or 'loss'",
        )
    return {"task.labels": labels}


def format_examples(examples: Iterable[Any]) -> ExampleFile:
    """(words, labels) pairs as tab-separated lines, with an empty line after each sentence; a word may be a list of numbers."""
    blocks = []
    for number, example in enumerate(examples, start=1):
        rows = example_rows(example)
        if rows is None:
            raise DataError(f"example {number} is {example!r:.60}; expected two lists of equal length, (words, labels)")
        blocks.append("".join("\t".join(row) + "\n" for row in rows))
    return ExampleFile(".tsv", "\n".join(blocks), "file", data={"column": "label", "split": [1.0, 0.0, 0.0]})


def example_rows(example: Any) -> list[list[str]] | None:
    """The cells of each line of an example; None if it is not an example."""
    if not isinstance(example, tuple | list) or len(example) != 2:
        return None
    words, labels = example
    if isinstance(words, str) or isinstance(labels, str) or not len(words) == len(labels) > 0:
        return None
    cells = [[str(number) for number in word] if isinstance(word, tuple | list) else [word] for word in words]
    rows = [[*word, label] for word, label in zip(cells, labels, strict=True)]
    usable = all(isinstance(cell, str) and cell.strip() and not {"\t", "\n"} & set(cell) for row in rows for cell in row)
    return rows if usable else None
