"""Word alignments and their error rate (Och & Ney 2003).

    AER = 1 - (|A and S| + |A and P|) / (|A| + |S|)        A found, S sure, P possible (S is part of P); lower is better

summed over the corpus. Files have one sentence pair a line, links apart by spaces: `i-j` is sure, `i?j` possible,
both counted from 0 (the Pharaoh format). Alignments are of words: merge subwords first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple

import numpy as np

from heedful.errors import DataError
from heedful.evaluation.metrics import SEED, Score, check_counts, score
from heedful.evaluation.resampling import Statistics

Link = tuple[int, int]  # word of the source, word of the target

LINK = re.compile(r"([0-9]{1,9})([-?])([0-9]{1,9})")


class Alignment(NamedTuple):
    sure: frozenset[Link]
    possible: frozenset[Link]  # the sure ones included


def parse_alignments(lines: Iterable[str]) -> list[Alignment]:
    """Read lines of links; a link given both ways is sure."""
    return [parse_alignment(line, f"line {number}") for number, line in enumerate(lines, start=1)]


def format_alignment(alignment: Alignment) -> str:
    """The line that parses to this alignment, its links in order."""
    return " ".join(f"{i}{'-' if (i, j) in alignment.sure else '?'}{j}" for i, j in sorted(alignment.possible))


def alignment_error_rate(
    found: Sequence[Set[Link]], gold: Sequence[Alignment], *, bootstrap: int = 0, seed: int = SEED
) -> Score:
    """From 0 (perfect) to 1; where nothing was found and nothing is sure, 0."""
    check_counts(alignments=found, references=gold)
    rows = [
        (len(links & line.sure) + len(links & line.possible), len(links) + len(line.sure))
        for links, line in zip(found, gold, strict=True)
    ]
    statistics = Statistics(
        rows=np.array(rows, dtype=np.float64),  # (sentences, 2): agreements, links
        formula=lambda sums: 1 - sums[0] / sums[1] if sums[1] else 0.0,
        signature="unit:word|links:sure,possible",
    )
    return score("aer", statistics, bootstrap, seed)


def precision_and_recall(found: Sequence[Set[Link]], gold: Sequence[Alignment]) -> tuple[float, float]:
    """The share of what was found that is possible, and of what is sure that was found; 1 where there is nothing."""
    links, sure = sum(map(len, found)), sum(len(line.sure) for line in gold)
    possible = sum(len(one & line.possible) for one, line in zip(found, gold, strict=True))
    recalled = sum(len(one & line.sure) for one, line in zip(found, gold, strict=True))
    return possible / links if links else 1.0, recalled / sure if sure else 1.0


def parse_alignment(line: str, place: str) -> Alignment:
    """One line of links; what is none is an error that names the place."""
    sure, possible = set(), set()
    for link in line.split():
        match = LINK.fullmatch(link)
        if match is None:
            raise DataError(f"{place}: {link!r:.40} is not a link; expected i-j (sure) or i?j (possible), from 0")
        pair = int(match[1]), int(match[3])
        possible.add(pair)
        if match[2] == "-":
            sure.add(pair)
    return Alignment(frozenset(sure), frozenset(possible))
