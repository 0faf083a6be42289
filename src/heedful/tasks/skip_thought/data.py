"""The data of skip-thought vectors: every line of a text is a sentence, and an empty line separates documents.

    row    sentence i, sentence i - 1, sentence i + 1        each [start … end], at most data.block tokens

A sentence at the border of a document has one neighbor. One without any is left out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.data.report import CheckReport
from heedful.errors import DataError
from heedful.tasks.base import Tokenizers
from heedful.tasks.language.data import TextData, TextSplits
from heedful.tasks.skip_thought.model import Neighbors
from heedful.text.specials import Specials

NONE = -1  # no sentence before or after


class Sentences(NamedTuple):
    """The sentences of an encoded text that have a neighbor."""

    ids: NDArray[Any]  # (tokens,)
    spans: NDArray[np.int64]  # (lines, 2): first token of a line and its end
    rows: NDArray[np.int64]  # (sentences, 3): the lines of the sentence, of the one before and of the one after; -1: none


def find_sentences(ids: NDArray[Any], end: int) -> Sentences:
    ends = np.flatnonzero(ids == end)
    spans = np.stack([np.concatenate(([0], ends[:-1] + 1)), ends], axis=1) if len(ends) else np.zeros((0, 2), np.int64)
    is_sentence = spans[:, 0] < spans[:, 1]  # (lines,)
    lines = np.arange(len(spans))
    before = np.where(np.concatenate(([False], is_sentence[:-1])), lines - 1, NONE)
    after = np.where(np.concatenate((is_sentence[1:], [False])), lines + 1, NONE)
    rows = np.stack([lines, before, after], axis=1)
    return Sentences(ids, spans, rows[is_sentence & ((before != NONE) | (after != NONE))])


class SkipThoughtData(TextData):
    def prepare(self, tokenizers: Tokenizers, report: CheckReport) -> TextSplits:
        texts = super().prepare(tokenizers, report)
        for split, text in zip(("training", "validation"), texts, strict=True):
            if not len(find_sentences(text.ids, tokenizers[1].specials.end).rows):
                raise DataError(
                    f"the {split} text has no two sentences in a row; expected one sentence per line",
                    hint="write one sentence per line, and an empty line between documents",
                )
        return texts

    def collate(self, sentences: Sentences, rows: NDArray[np.int64], marks: Specials) -> Neighbors:
        """The batch of rows of `sentences.rows`."""

        def column(numbers: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
            texts = [[] if number == NONE else self.text(sentences, number, marks) for number in numbers.tolist()]
            time = max(2, *map(len, texts))
            padded = torch.tensor([[*text, *[marks.pad] * (time - len(text))] for text in texts])
            return padded, torch.tensor(list(map(len, texts)))

        (tokens, lengths), (previous, _), (after, _) = (column(rows[:, at]) for at in range(3))
        return Neighbors(tokens, lengths, previous, after)

    def text(self, sentences: Sentences, number: int, marks: Specials) -> list[int]:
        begin, end = sentences.spans[number]
        return [marks.start, *sentences.ids[begin : min(end, begin + self.data.block - 2)].tolist(), marks.end]

    def usage_and_limits(self, folder: str) -> tuple[str, str]:
        usage = f'embedder = heedful.Embedder.load("{folder}")\nembedder.similarity(["…"], ["…", "…"])'
        return usage, f"Sentences are truncated to {self.data.block} tokens."
