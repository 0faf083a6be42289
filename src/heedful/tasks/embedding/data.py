"""The data of embedding: every text becomes [start text end], and a batch a grid of texts.

    row      anchor, positive, hard negatives …
    batch    (rows, 2 + negatives, time)         a row with fewer hard negatives is filled up with empty texts

Candidates of a row are the positives and hard negatives of all rows. Left out are those with the same tokens as its anchor or
its positive, and the positives of rows with the same anchor: they are no negatives.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from heedful.data.report import CheckReport
from heedful.data.row_files import RowFile, check_file, find_split_file, scan_file
from heedful.data.similar import SimilarConfig, SimilarTexts, similar_form
from heedful.data.sources import refuse_streams
from heedful.data.splits import SPLITS
from heedful.errors import DataError
from heedful.tasks.base import ExampleFile, RunConfig, Tokenizers
from heedful.tasks.batches import pad_length
from heedful.tasks.embedding.config import EmbeddingConfig
from heedful.text.tokenizer import Tokenizer

# Characters of a text that are tokenized at most: tokens are truncated at data.max_length anyway.
MAX_CHARACTERS, CHARACTERS_PER_TOKEN = 100_000, 100
ENCODE_BATCH = 256  # texts encoded at a time

Ids = tuple[int, ...]


class SimilarRow(NamedTuple):
    anchor: Ids
    positive: Ids
    negatives: tuple[Ids, ...]


class SimilarBatch(NamedTuple):
    tokens: Tensor  # (rows, 2 + negatives, time): anchor, positive, hard negatives
    lengths: Tensor  # (rows, 2 + negatives): tokens of each text; 0: there is none
    allowed: Tensor  # (rows, all rows, 1 + negatives): whether a row is compared with a candidate
    place: Tensor  # (rows,): of each row among all those whose candidates it is compared with

    def pin(self) -> SimilarBatch:
        return SimilarBatch(*(tensor.pin_memory() for tensor in self))

    def to(self, device: torch.device) -> SimilarBatch:
        return SimilarBatch(*(tensor.to(device, non_blocking=True) for tensor in self))

    def share(self, part: slice) -> SimilarBatch:
        """Some of the rows, compared with the candidates of all."""
        return SimilarBatch(*(tensor[part] for tensor in self))

    def rows(self, part: slice) -> SimilarBatch:
        """Some of the rows, compared with each other only."""
        own = self.share(part)
        return own._replace(allowed=own.allowed[:, part], place=torch.arange(len(own.tokens)))


class SimilarSplits(NamedTuple):
    train: list[SimilarRow]
    valid: list[SimilarRow]

    @property
    def negatives(self) -> int:
        """The most hard negatives of a training row: batches have as many, so that few shapes occur."""
        return widest(self.train)


class SimilarData:
    def __init__(self, run: RunConfig) -> None:
        self.config: EmbeddingConfig = run.task
        self.data: SimilarConfig = run.data

    def check(self) -> CheckReport:
        """Read every file once; report the unusable lines."""
        refuse_streams(self.files())
        found = ((split, find_split_file(self.data, split)) for split in SPLITS)
        form = similar_form(self.data)
        return CheckReport(tuple(check_file(self.data, split, file, form) for split, file in found if file is not None))

    def files(self) -> list[Path]:
        found = (find_split_file(self.data, split) for split in SPLITS)
        return list(dict.fromkeys(file.path for file in found if file is not None))

    def examples(self, split: str) -> list[SimilarTexts] | None:
        """The usable examples of a split; None if there is no such split."""
        file: RowFile | None = find_split_file(self.data, split)
        return None if file is None else scan_file(self.data, file, similar_form(self.data)).examples

    def lines(self, side: Literal["source", "target"]) -> Iterator[str]:
        """The texts that the tokenizer is trained on."""
        for example in (self.examples("train") or ()) if side == "target" else ():
            yield from (example.anchor, example.positive, *example.negatives)

    @property
    def tags(self) -> list[str]:
        return []

    def prepare(self, tokenizers: Tokenizers, report: CheckReport) -> SimilarSplits:
        train, valid = (self.encode(self.examples(split) or [], tokenizers[1]) for split in ("train", "valid"))
        return SimilarSplits(train, valid)

    def encode(self, examples: Sequence[SimilarTexts], tokenizer: Tokenizer) -> list[SimilarRow]:
        texts = [text for example in examples for text in (example.anchor, example.positive, *example.negatives)]
        ids = iter(encode_texts(texts, tokenizer, self.data.max_length))
        return [SimilarRow(next(ids), next(ids), tuple(next(ids) for _ in example.negatives)) for example in examples]

    def collate(self, rows: Sequence[SimilarRow], width: int, padding: int) -> SimilarBatch:
        """The batch of rows; width: hard negatives of each, filled up with empty texts."""
        grid = [[row.anchor, row.positive, *row.negatives, *[()] * (width - len(row.negatives))] for row in rows]
        lengths = torch.tensor([[len(text) for text in texts] for texts in grid])  # (rows, 2 + width)
        time = pad_length(int(lengths.max()), self.data.length_multiple, self.data.max_length)
        tokens = torch.tensor([[[*text, *[padding] * (time - len(text))] for text in texts] for texts in grid])
        index: dict[Ids, int] = {}
        same = torch.tensor([[index.setdefault(text, len(index)) for text in texts] for texts in grid])  # (rows, 2 + width)
        return SimilarBatch(tokens, lengths, allowed_candidates(same, lengths), torch.arange(len(rows)))

    def usage_and_limits(self, folder: str) -> tuple[str, str]:
        usage = f'embedder = heedful.Embedder.load("{folder}")\nembedder.similarity(["…"], ["…", "…"])'
        return usage, f"Texts are truncated to {self.data.max_length} tokens."


def widest(rows: Sequence[SimilarRow]) -> int:
    return max((len(row.negatives) for row in rows), default=0)


def allowed_candidates(texts: Tensor, lengths: Tensor) -> Tensor:
    """Which candidates each row is compared with: texts (rows, 2 + width), equal numbers for equal texts
    -> (rows, rows, 1 + width)."""
    anchor, positive, candidates = texts[:, 0], texts[:, 1], texts[:, 1:]
    wrong = (candidates == anchor[:, None, None]) | (candidates == positive[:, None, None])  # (rows, rows, 1 + width)
    wrong[:, :, 0] |= anchor == anchor[:, None]  # another positive of the same anchor
    allowed = ~wrong & (lengths[:, 1:] > 0)
    allowed[:, :, 0] |= torch.eye(len(texts), dtype=torch.bool)
    return allowed


def encode_texts(texts: Sequence[str], tokenizer: Tokenizer, most: int) -> list[Ids]:
    """[start text end] of each text, truncated to `most` tokens."""
    marks, characters = tokenizer.specials, max(MAX_CHARACTERS, CHARACTERS_PER_TOKEN * most)
    found: list[Ids] = []
    for at in range(0, len(texts), ENCODE_BATCH):
        ids = tokenizer.encode_many([text[:characters] for text in texts[at : at + ENCODE_BATCH]])
        found += [(marks.start, *row[: max(most - 2, 0)], marks.end) for row in ids]
    return found


def format_examples(examples: Iterable[Any]) -> ExampleFile:
    """(anchor, positive, hard negative, …) tuples as lines of JSON."""
    rows = []
    for number, example in enumerate(examples, start=1):
        texts = list(example) if isinstance(example, tuple | list) else []
        if len(texts) < 2 or not all(isinstance(text, str) and text.strip() for text in texts):
            raise DataError(f"example {number} is {example!r:.60}; expected a tuple of texts, (anchor, positive)")
        row = {"anchor": texts[0], "positive": texts[1], "negatives": texts[2:]}
        rows.append(json.dumps(row, ensure_ascii=False))
    options = {"columns": ["anchor", "positive", "negatives"], "split": [1.0, 0.0, 0.0]}
    return ExampleFile(".jsonl", "".join(f"{row}\n" for row in rows), "file", data=options)
