"""The data of classification: every example becomes token sequences.

    layout            decoder (GPT-1: Radford et al., 2018)              encoder (BERT: Devlin et al., 2019)
    classification    [start text extract]                               [start text end]
    entailment        [start premise delimiter hypothesis extract]       [start premise end hypothesis end]
    similarity        as entailment in both orders, hidden states added
    choice            as entailment for every answer, [context, answer]; the highest score wins

A family whose segments are sentences (han) reads [start sentence … sentence end]. A model with characters also reads the
spelling of the word of each token (`../spelling.py`).

The start token, which BERT calls [CLS], the end of a line as delimiter and [SEP], and padding as extract are in the vocabulary
already; start and padding appear in no text, so that fine-tuning learns their meaning.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from heedful.data.labeled import Example, LabeledConfig, LabeledFile, check_examples, find_split_file, read_examples
from heedful.data.report import CheckReport
from heedful.data.sources import refuse_streams
from heedful.errors import DataError
from heedful.models.family import Architecture, SentenceGrid
from heedful.tasks.base import ExampleFile, RunConfig, Tokenizers
from heedful.tasks.batches import pad_length
from heedful.tasks.classification.batch import LabeledBatch
from heedful.tasks.classification.config import ClassificationConfig
from heedful.tasks.spelling import NO_SPELLING, spell, used_bytes, words_of_tokens
from heedful.text.sentences import split_sentences
from heedful.text.specials import Specials
from heedful.text.tokenizer import Tokenizer

# Characters of a text that are tokenized at most: tokens are truncated at data.max_length anyway.
MAX_CHARACTERS, CHARACTERS_PER_TOKEN = 100_000, 100
ENCODE_BATCH = 256  # texts encoded at a time
NO_WORD = Specials(0, 0, 0, 0)  # in place of special tokens, where words are joined as their tokens

Ids = list[int]
LAYOUTS: dict[str, Callable[[int], list[tuple[int, ...]]]] = {  # number of texts -> the texts of each sequence
    "classification": lambda count: [(0,)],
    "entailment": lambda count: [(0, 1)],
    "similarity": lambda count: [(0, 1), (1, 0)],
    "choice": lambda count: [(0, answer) for answer in range(1, count)],
}
COLUMNS = {
    "classification": (1, 1),
    "entailment": (2, 2),
    "similarity": (2, 2),
    "choice": (3, 1000),
}  # data.texts: minimum, maximum


class Row(NamedTuple):
    """A sequence of tokens."""

    ids: Ids
    segments: list[int]  # the text, or the sentence, that each belongs to
    spelling: Sequence[list[int]] = ()  # of the word of each; empty: the model reads none


def join_for_decoder(texts: Sequence[Ids], marks: Specials, most: int) -> Row:
    """[start a delimiter b extract]; the end of the last text is cut off to keep `most` tokens."""
    inner = [id for at, text in enumerate(texts) for id in ([marks.end, *text] if at else text)]
    ids = [marks.start, *inner[: most - 2], marks.pad]
    return Row(ids, [0] * len(ids))  # the delimiter is enough


def join_for_encoder(texts: Sequence[Ids], marks: Specials, most: int) -> Row:
    """[start a end b end]; the end of the longest text is cut off to keep `most` tokens."""
    kept = fit([len(text) for text in texts], most - 1 - len(texts))
    parts = [[*text[:length], marks.end] for text, length in zip(texts, kept, strict=True)]
    segments = [0, *(at for at, part in enumerate(parts) for _ in part)]
    return Row([marks.start, *(id for part in parts for id in part)], segments)


def join_sentences(sentences: Sequence[Ids], marks: Specials, most: int, grid: SentenceGrid) -> Row:
    """[start sentence … sentence end]; longer sentences than the grid has words are divided, more than it has are cut off."""
    first, *others = sentences or [[]]
    whole = [[marks.start, *first], *others]
    whole[-1] = [*whole[-1], marks.end]
    parts = [ids[at : at + grid.words] for ids in whole for at in range(0, len(ids), grid.words)][: grid.sentences]
    ids = [id for part in parts for id in part][:most]
    return Row([*ids[:-1], marks.end], [at for at, part in enumerate(parts) for _ in part][:most])


def fit(lengths: Sequence[int], room: int) -> list[int]:
    """Reduce the longest of these lengths until their sum is at most `room`: shorter ones leave what they do not need."""
    kept, left = list(lengths), max(0, room)
    for done, at in enumerate(sorted(range(len(kept)), key=lambda at: kept[at])):
        kept[at] = min(kept[at], left // (len(kept) - done))
        left -= kept[at]
    return kept


JOINS: dict[Architecture, Callable[[Sequence[Ids], Specials, int], Row]] = {
    "decoder": join_for_decoder,
    "encoder": join_for_encoder,
}


def encode_texts(texts: Sequence[str], tokenizer: Tokenizer) -> list[Ids]:
    parts = (texts[at : at + ENCODE_BATCH] for at in range(0, len(texts), ENCODE_BATCH))
    return [ids for part in parts for ids in tokenizer.encode_many(part)]


class EncodedExamples(NamedTuple):
    groups: list[list[Row]]  # the sequences of each example
    labels: list[tuple[int, ...]]  # indices of the labels of each example: one, or any number with multi_label


class EncodedSplits(NamedTuple):
    train: EncodedExamples
    valid: EncodedExamples


class LabeledData:
    def __init__(self, run: RunConfig) -> None:
        self.config: ClassificationConfig = run.task
        self.data: LabeledConfig = run.data
        self.seed, self.grid, self.reads_spelling = run.seed, run.model.sentence_grid, run.model.reads_spelling
        self.join = JOINS[run.model.architecture]
        if self.grid is not None:
            self.join = partial(join_sentences, grid=self.grid)

    def check(self) -> CheckReport:
        """Read every file once; report the unusable lines and the number of examples of each label."""
        refuse_streams(self.files())
        fewest, most = COLUMNS[self.config.layout]
        if not fewest <= len(self.data.texts) <= most:
            expected = f"{fewest}" if fewest == most else f"{fewest} or more"
            raise DataError(f"layout {self.config.layout!r} needs {expected} columns in data.texts, not {len(self.data.texts)}")
        if self.config.layout == "choice" and len(self.config.labels) != len(self.data.texts) - 1:
            raise DataError(
                f"layout 'choice' needs a label for each of {len(self.data.texts) - 1} answers, not {len(self.config.labels)}"
            )
        several = self.config.multi_label
        files = ((split, find_split_file(self.data, split)) for split in ("train", "valid", "test"))
        checks = (
            check_examples(self.data, split, file, self.config.labels, several=several)
            for split, file in files
            if file is not None
        )
        return CheckReport(tuple(checks))

    def files(self) -> list[Path]:
        found = (find_split_file(self.data, split) for split in ("train", "valid", "test"))
        return list(dict.fromkeys(file.path for file in found if file is not None and isinstance(file.path, Path)))

    def examples(self, file: LabeledFile) -> list[Example]:
        """Read the usable examples of a file; labels that the config does not list are an error."""
        return read_examples(self.data, file, self.config.labels, several=self.config.multi_label)

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
        index = {label: at for at, label in enumerate(self.config.labels)}
        groups = self.sequences([example.texts for example in examples], tokenizer)
        return EncodedExamples(groups, [tuple(index[label] for label in example.labels) for example in examples])

    def sequences(self, examples: Sequence[tuple[str, ...]], tokenizer: Tokenizer) -> list[list[Row]]:
        """The sequences of each example, given as its texts."""
        most = max(MAX_CHARACTERS, CHARACTERS_PER_TOKEN * self.data.max_length)
        parts = [[text[:most] for text in example] for example in examples]
        if self.grid is not None:
            parts = [split_sentences(text) for (text,) in parts]
        texts = [text for several in parts for text in several]
        ids = encode_texts(texts, tokenizer)
        groups = self.join_groups(parts, ids, tokenizer.specials)
        if not self.reads_spelling:
            return groups
        words = words_of_tokens(texts, ids, tokenizer)
        known = ["", *dict.fromkeys(word for several in words for word in several)]  # no word: special tokens
        spelled, number = [spell(word) for word in known], {word: at for at, word in enumerate(known)}
        numbers = [[number[word] for word in several] for several in words]
        joined = self.join_groups(parts, numbers, NO_WORD)  # as the tokens are joined
        return [
            [row._replace(spelling=[spelled[at] for at in other.ids]) for row, other in zip(*several, strict=True)]
            for several in zip(groups, joined, strict=True)
        ]

    def join_groups(self, parts: Sequence[Sequence[str]], ids: Iterable[Ids], marks: Specials) -> list[list[Row]]:
        """The sequences of each example; parts: its texts, or the sentences of its text; ids: of each part of all of them."""
        remaining, groups = iter(ids), []
        for several in parts:
            own = list(islice(remaining, len(several)))
            chosen = [tuple(range(len(own)))] if self.grid is not None else LAYOUTS[self.config.layout](len(own))
            groups.append([self.join([own[at] for at in one], marks, self.data.max_length) for one in chosen])
        return groups

    def collate(self, encoded: EncodedExamples, chosen: Sequence[int], marks: Specials) -> LabeledBatch:
        """The batch of the chosen examples."""
        rows = [sequence for i in chosen for sequence in encoded.groups[i]]
        longest = pad_length(max(len(row.ids) for row in rows), self.data.length_multiple, self.data.max_length)
        tokens = torch.tensor([[*row.ids, *[marks.pad] * (longest - len(row.ids))] for row in rows])
        predicted = int((tokens[:, 1:] != marks.pad).sum())
        return LabeledBatch(
            tokens,
            torch.tensor([[*row.segments, *[0] * (longest - len(row.ids))] for row in rows]),
            torch.tensor([len(row.ids) - 1 for row in rows]),
            self.label_tensor([encoded.labels[i] for i in chosen]),
            self.spelling_tensor(rows, longest),
            torch.full((len(chosen),), max(predicted, 1) / len(chosen)),
        )

    def spelling_tensor(self, rows: Sequence[Row], longest: int) -> Tensor:
        """(rows, longest, bytes); with data.pad_to_multiple_of, always as many bytes, so that few shapes occur."""
        if not self.reads_spelling:
            return torch.zeros(len(rows), longest, 0, dtype=torch.int64)
        spelling = torch.tensor([[*row.spelling, *[NO_SPELLING] * (longest - len(row.ids))] for row in rows])
        return spelling if self.data.length_multiple > 1 else spelling[..., : used_bytes(spelling)]

    def label_tensor(self, labels: Sequence[tuple[int, ...]]) -> Tensor:
        """(examples,) indices; with multi_label (examples, labels), 1 for each label of an example."""
        if not self.config.multi_label:
            return torch.tensor([index for (index,) in labels])
        return torch.tensor([[float(at in given) for at in range(len(self.config.labels))] for given in labels])

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
