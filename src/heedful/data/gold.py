"""Sentence pairs and gold word alignments: two or three line-aligned files."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from heedful.data.input_lines import read_texts
from heedful.errors import DataError
from heedful.evaluation.word_alignment import Alignment, parse_alignment


class SentencePair(NamedTuple):
    """A sentence pair to align; words are separated by white space."""

    source: str
    target: str

    @property
    def swapped(self) -> SentencePair:
        return SentencePair(self.target, self.source)


class Gold(NamedTuple):
    """Sentence pairs with their gold alignments."""

    pairs: list[SentencePair]
    alignments: list[Alignment]

    @property
    def swapped(self) -> Gold:
        """The same with source and target exchanged."""
        alignments = [Alignment(*(frozenset((j, i) for i, j in links) for links in line)) for line in self.alignments]
        return Gold([pair.swapped for pair in self.pairs], alignments)


def read_words(source: Path, target: Path) -> list[SentencePair]:
    sides = list(read_texts(source)), list(read_texts(target))
    refuse_unequal_counts((source, len(sides[0])), (target, len(sides[1])))
    return [SentencePair(*pair) for pair in zip(*sides, strict=True)]


def read_gold(source: Path, target: Path, alignment: Path) -> Gold:
    """Read pairs and alignments; DataError if a link is out of range."""
    pairs = read_words(source, target)
    lines = [parse_alignment(line, f"{alignment} line {n}") for n, line in enumerate(read_texts(alignment), start=1)]
    refuse_unequal_counts((source, len(pairs)), (alignment, len(lines)))
    for number, (pair, line) in enumerate(zip(pairs, lines, strict=True), start=1):
        refuse_out_of_range(line, len(pair.source.split()), len(pair.target.split()), f"{alignment} line {number}")
    return Gold(pairs, lines)


def builtin_gold(split: str, count: int, seed: int = 0) -> Gold:
    """Return pairs of the built-in corpus with their exact alignments."""
    from heedful.data.grammar import generate

    sentences = list(generate(split, count, seed))  # type: ignore[arg-type]
    return Gold(
        [SentencePair(one.source, one.target) for one in sentences],
        [Alignment(one.alignment, one.alignment) for one in sentences],
    )


def refuse_unequal_counts(first: tuple[Path, int], second: tuple[Path, int]) -> None:
    """Raise if two files, each with its number of lines, are not line-aligned."""
    if first[1] != second[1]:
        raise DataError(
            f"{first[0]} has {first[1]:,} lines, but {second[0]} has {second[1]:,}; expected the same number, "
            "with line n of each for the same pair",
            hint="look for a missing, extra or split line",
        )


def refuse_out_of_range(line: Alignment, source_words: int, target_words: int, place: str) -> None:
    for source, target in sorted(line.possible):
        if source >= source_words or target >= target_words:
            raise DataError(
                f"{place}: the link {source}-{target} is out of range; "
                f"the source has {source_words} words, the target {target_words}, counted from 0",
                hint="check that the alignment belongs to this text, with words separated by spaces",
            )
