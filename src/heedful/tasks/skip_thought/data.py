"""The data of skip-thought vectors: every line of a text is a sentence, and an empty line separates documents.

    row    sentence i, sentence i - 1, sentence i + 1        each [start … end], at most data.block tokens

A sentence at the border of a document has one neighbor. One without any is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.data.report import CheckReport
from heedful.data.text_blocks import JoinedText
from heedful.errors import DataError
from heedful.tasks.base import Tokenizers
from heedful.tasks.language.data import TextData, TextSplits
from heedful.tasks.skip_thought.model import Neighbors
from heedful.text.specials import Specials

NONE = -1  # no sentence before or after


class Sentences(NamedTuple):
    """The sentences of encoded texts that have a neighbor."""

    text: JoinedText
    spans: NDArray[np.int64]  # (lines, 2): first token of a line and its end
    rows: NDArray[np.int64]  # (sentences, 3): the lines of the sentence, of the one before and of the one after; -1: none
    sizes: tuple[int, ...]  # sentences of each text


def find_sentences(texts: Sequence[NDArray[Any]], end: int) -> Sentences:
    """The sentences of all texts; neighbors are lines of the same text."""
    joined, lines = JoinedText(texts), 0
    spans, rows = [], []
    for text, begin in zip(texts, joined.begins, strict=False):
        found, neighbors = lines_and_neighbors(text, end)
        spans.append(found + begin)
        rows.append(np.where(neighbors == NONE, NONE, neighbors + lines))
        lines += len(found)
    return Sentences(joined, np.concatenate(spans), np.concatenate(rows), tuple(map(len, rows)))


def lines_and_neighbors(ids: NDArray[Any], end: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """`spans` and `rows` of one text."""
    ends = np.flatnonzero(ids == end)
    spans = np.stack([np.concatenate(([0], ends[:-1] + 1)), ends], axis=1) if len(ends) else np.zeros((0, 2), np.int64)
    is_sentence = spans[:, 0] < spans[:, 1]  # (lines,)
    lines = np.arange(len(spans))
    before = np.where(np.concatenate(([False], is_sentence[:-1])), lines - 1, NONE)
    after = np.where(np.concatenate((is_sentence[1:], [False])), lines + 1, NONE)
    rows = np.stack([lines, before, after], axis=1)
    return spans, rows[is_sentence & ((before != NONE) | (after != NONE))]


class SkipThoughtData(TextData):
    def prepare(self, tokenizers: Tokenizers, report: CheckReport) -> TextSplits:
        texts = self.prepare_whole(tokenizers)
        for split, text in (*(("training", text) for text in texts.train), ("validation", texts.valid)):
            if not len(find_sentences([text.ids], tokenizers[1].specials.end).rows):
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
        return [marks.start, *sentences.text.span(begin, min(end, begin + self.data.block - 2)).tolist(), marks.end]

    def usage_and_limits(self, folder: str) -> tuple[str, str]:
        usage = f'embedder = heedful.Embedder.load("{folder}")\nembedder.similarity(["…"], ["…", "…"])'
        return usage, f"Sentences are truncated to {self.data.block} tokens."
