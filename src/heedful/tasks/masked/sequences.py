"""Text as training sequences of equal length.

    Blocks    [CLS] and consecutive text, lines separated by the end token; every block is full (RoBERTa: Liu et al., 2019)
    Pairs     [CLS] a [SEP] b [SEP] with segments 0 and 1, padded; b continues a, or is from another place (Devlin et al., 2019)

A text of a pair is a run of whole lines, or a part of a line that is too long. An empty line separates documents. Pairs are
inside a document where lines are short, and inside a line where they are long, so that b continues a in meaning as well.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from heedful.data.text_blocks import BlockShape, JoinedText, cut_blocks
from heedful.errors import DataError
from heedful.tasks.masked.masking import Ids
from heedful.text.specials import Specials

MIN_TEXTS = 3  # for pairs: a text, its continuation and another one
MARKS = 3  # special tokens of a pair: [CLS] a [SEP] b [SEP]


class Sequences(NamedTuple):
    """Sequences before masking."""

    tokens: Ids  # (rows, time)
    places: Ids  # (rows,): where each is in the text
    mask: NDArray[np.bool_] | None = None  # (rows, time): True for real tokens; None: all are
    segments: Ids | None = None  # (rows, time)
    labels: Ids | None = None  # (rows,): 0 if the second text continues the first, else 1


class SequenceSource(Protocol):
    def plan(self, generator: np.random.Generator) -> NDArray[np.int64]:
        """The sequences of an epoch, in the order of the text: (sequences, …)."""

    def rows(self, chosen: NDArray[np.int64]) -> Sequences:
        """The chosen sequences of a plan."""


class Blocks:
    """Blocks of consecutive text, cut at another offset by every plan; of mixed corpora `BlockMixture` makes the plan."""

    def __init__(self, text: JoinedText, block: int, marks: Specials) -> None:
        self.text, self.width, self.start = text, block - 1, marks.start  # one token of a block is [CLS]

    def plan(self, generator: np.random.Generator) -> NDArray[np.int64]:
        return cut_blocks(self.text.sizes[0], BlockShape(self.width, self.width), generator)

    def rows(self, chosen: NDArray[np.int64]) -> Sequences:
        text = self.text.rows(chosen, self.width)  # (rows, block - 1)
        return Sequences(np.pad(text, ((0, 0), (1, 0)), constant_values=self.start), chosen)


class Pairs:
    """Pairs of texts, half of them from different places."""

    def __init__(self, ids: NDArray[Any], block: int, marks: Specials) -> None:
        self.ids, self.block, self.marks = ids, block, marks
        self.spans, self.documents = cut_texts(ids, marks.end, (block - MARKS) // 2)
        if len(self.spans) < MIN_TEXTS or not np.any(np.diff(self.documents) == 0):
            raise DataError(
                f"the text has {len(self.spans)} runs of lines of at most {(block - MARKS) // 2} tokens; "
                "expected three or more, at least two of them in one document",
                hint="give more text, or a smaller data.block",
            )

    def plan(self, generator: np.random.Generator) -> NDArray[np.int64]:
        """(pairs, 3): a, b and the label."""
        first = np.flatnonzero(np.diff(self.documents, prepend=-1))  # (documents,): first text of each
        sizes = np.diff([*first, len(self.documents)])
        skipped = (sizes >= MIN_TEXTS) & (generator.random(len(first)) < 0.5)  # so that other texts are paired
        place = np.arange(len(self.documents)) - np.repeat(first + skipped, sizes)  # in its document
        left = np.repeat(first + sizes, sizes) - np.arange(len(self.documents))  # texts of the document from here on
        a = np.flatnonzero((place >= 0) & (place % 2 == 0) & (left >= 2))  # (pairs,)
        other = generator.integers(len(self.documents) - 2, size=len(a))
        other += 2 * (other >= a)  # neither a nor its continuation
        label = (generator.random(len(a)) < 0.5).astype(np.int64)
        return np.stack((a, np.where(label == 0, a + 1, other), label), axis=1)

    def rows(self, chosen: NDArray[np.int64]) -> Sequences:
        tokens = np.full((len(chosen), self.block), self.marks.pad, np.int64)
        segments = np.zeros_like(tokens)
        mask = np.zeros(tokens.shape, np.bool_)
        for row, (a, b, _) in enumerate(chosen):
            first, second = self.text(a), self.text(b)
            pair = np.concatenate(([self.marks.start], first, [self.marks.end], second, [self.marks.end]))
            tokens[row, : len(pair)] = pair
            segments[row, len(first) + 2 : len(pair)] = 1
            mask[row, : len(pair)] = True
        return Sequences(tokens, self.spans[chosen[:, 0], 0], mask, segments, chosen[:, 2])

    def text(self, number: int) -> NDArray[Any]:
        """The tokens of a text, without the ends of its lines."""
        start, end = self.spans[number]
        ids: NDArray[Any] = self.ids[start:end]
        return np.asarray(ids[ids != self.marks.end])


def cut_texts(ids: NDArray[Any], end: int, most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The texts of pairs, (texts, 2): first token and the one after the last; and the number of each one's document. Texts
    have at most `most` tokens, ends of lines not counted. The parts of a long line are a document of their own."""
    spans: list[tuple[int, int]] = []
    documents: list[int] = []
    document, begin, size = 0, 0, 0  # the run of short lines that is being collected: its first token and its tokens

    def close(until: int) -> None:
        nonlocal size
        if size:
            spans.append((begin, until))
            documents.append(document)
        size = 0

    start = 0
    for at in map(int, np.flatnonzero(ids == end)):
        length = at - start
        if 0 < length <= most:
            if size + length > most:
                close(start)
            if not size:
                begin = start
            size += length
        else:
            close(start)
            document += 1
            if length:
                count = -(-length // most)
                cuts = [start + length * part // count for part in range(count + 1)]
                spans += pairwise(cuts)
                documents += [document] * count
                document += 1
        start = at + 1
    close(start)
    return np.array(spans, np.int64).reshape(-1, 2), np.array(documents, np.int64)
