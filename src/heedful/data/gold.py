"""Pairs of sentences to be aligned, and gold alignments to judge by: two or three files, line n of each belonging together."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from heedful.data.input_lines import read_texts
from heedful.errors import DataError
from heedful.evaluation.word_alignment import Alignment, parse_alignment


class Words(NamedTuple):
    """A pair whose words are to be aligned; words are what stands between spaces."""

    source: str
    target: str

    @property
    def swapped(self) -> Words:
        return Words(self.target, self.source)


class Gold(NamedTuple):
    """Pairs with the alignments that people, or a grammar, gave them."""

    pairs: list[Words]
    alignments: list[Alignment]

    @property
    def swapped(self) -> Gold:
        """Seen from the other language."""
        turned = [Alignment(*(frozenset((j, i) for i, j in links) for links in line)) for line in self.alignments]
        return Gold([pair.swapped for pair in self.pairs], turned)


def read_words(source: Path, target: Path) -> list[Words]:
    sides = list(read_texts(source)), list(read_texts(target))
    refuse_unequal((source, len(sides[0])), (target, len(sides[1])))
    return [Words(*pair) for pair in zip(*sides, strict=True)]


def read_gold(source: Path, target: Path, alignment: Path) -> Gold:
    """Every link must be between words that there are."""
    pairs = read_words(source, target)
    lines = [parse_alignment(line, f"{alignment} line {n}") for n, line in enumerate(read_texts(alignment), start=1)]
    refuse_unequal((source, len(pairs)), (alignment, len(lines)))
    for number, (pair, line) in enumerate(zip(pairs, lines, strict=True), start=1):
        refuse_beyond(line, len(pair.source.split()), len(pair.target.split()), f"{alignment} line {number}")
    return Gold(pairs, lines)


def builtin_gold(split: str, count: int, seed: int = 0) -> Gold:
    """Of the built-in corpus, whose alignments are exact."""
    from heedful.data.grammar import generate

    found = list(generate(split, count, seed))  # type: ignore[arg-type]
    return Gold([Words(one.source, one.target) for one in found], [Alignment(one.alignment, one.alignment) for one in found])


def refuse_unequal(one: tuple[Path, int], another: tuple[Path, int]) -> None:
    (first, count), (second, other) = one, another
    if count != other:
        raise DataError(
            f"{first} has {count:,} lines, but {second} has {other:,}; line n of each must belong together",
            hint="look for a line that was lost, added or cut in two",
        )


def refuse_beyond(line: Alignment, source_words: int, target_words: int, place: str) -> None:
    for source, target in sorted(line.possible):
        if source >= source_words or target >= target_words:
            raise DataError(
                f"{place}: {source}-{target} links words that are not there; "
                f"the source has {source_words}, the target {target_words}, counted from 0",
                hint="words are what stands between spaces; the alignment must be of this very text",
            )
