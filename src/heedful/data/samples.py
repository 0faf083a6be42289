"""Sentences with what is known of them, for analyses over a corpus.

from_grammar    source, target, dependency arcs of both, and the word alignment
from_lines      source TAB target TAB alignment (i-j i-j …); the last two may be missing
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from heedful.data.conllu import Arc
from heedful.data.grammar import Sentence
from heedful.errors import DataError
from heedful.evaluation.word_alignment import Alignment, parse_alignments


class Sample(NamedTuple):
    source: str | None  # None: the model has no source
    target: str | None = None  # None: not known
    source_arcs: Sequence[Arc] | None = None
    target_arcs: Sequence[Arc] | None = None
    alignment: Alignment | None = None
    label: str | None = None  # of a classification example; None: not known


def from_grammar(sentences: Iterable[Sentence]) -> Iterator[Sample]:
    """Samples of the built-in grammar."""
    for sentence in sentences:
        yield Sample(
            sentence.source,
            sentence.target,
            arcs(sentence.source_heads, sentence.source_labels),
            arcs(sentence.target_heads, sentence.target_labels),
            Alignment(sentence.alignment, sentence.alignment),
        )


def arcs(heads: Sequence[int], labels: Sequence[str]) -> list[Arc]:
    """heads: for each whitespace-separated word the index of its head; -1 for the root."""
    return [Arc(word, head, label) for word, (head, label) in enumerate(zip(heads, labels, strict=True)) if head >= 0]


def from_lines(lines: Iterable[str], name: str) -> Iterator[Sample]:
    """Samples of tab-separated lines; name: of the file, for errors."""
    for number, line in enumerate(lines, start=1):
        cells = line.split("\t")
        if len(cells) > 3:
            raise DataError(
                f"{name} line {number} has {len(cells)} columns; expected at most 3, separated by tabs",
                hint="give the source, the target and the alignment (0-0 1-2 …)",
            )
        try:
            alignment = parse_alignments(cells[2:])[0] if cells[2:] else None
        except DataError as error:
            raise DataError(f"{name} line {number}: {str(error).removeprefix('line 1: ')}") from error
        target = cells[1] if cells[1:] else None
        words = len(cells[0].split()), len((target or "").split())
        for source_word, target_word in () if alignment is None else sorted(alignment.possible):
            if source_word >= words[0] or target_word >= words[1]:
                link = f"{source_word}-{target_word}"
                raise DataError(f"{name} line {number}: link {link}, but the sentences have {words[0]} and {words[1]} words")
        yield Sample(cells[0], target, alignment=alignment)
