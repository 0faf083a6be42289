"""Word alignments and their error rate (Och & Ney 2003).

    AER = 1 - (|A and S| + |A and P|) / (|A| + |S|)        A predicted, S sure, P possible (S in P); lower is better

summed over the corpus. Files have one sentence pair per line, with links separated by spaces: `i-j` is sure, `i?j`
possible, both counted from 0 (the Pharaoh format). Alignments are between words: merge subwords first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple

import numpy as np

from heedful.errors import DataError
from heedful.evaluation.metrics import SEED, Score, check_counts, score
from heedful.evaluation.resampling import Statistics

Link = tuple[int, int]  # source word, target word

LINK = re.compile(r"([0-9]{1,9})([-?])([0-9]{1,9})")


class Alignment(NamedTuple):
    sure: frozenset[Link]
    possible: frozenset[Link]  # includes the sure ones


def parse_alignments(lines: Iterable[str]) -> list[Alignment]:
    """Parse lines of links; a link given as both sure and possible is sure."""
    return [parse_alignment(line, f"line {number}") for number, line in enumerate(lines, start=1)]


def format_alignment(alignment: Alignment) -> str:
    """Return the line that parses to this alignment, with sorted links."""
    return " ".join(f"{i}{'-' if (i, j) in alignment.sure else '?'}{j}" for i, j in sorted(alignment.possible))


def alignment_error_rate(
    predicted: Sequence[Set[Link]], gold: Sequence[Alignment], *, bootstrap: int = 0, seed: int = SEED
) -> Score:
    """Return the error rate, from 0 (perfect) to 1; 0 if there are no predicted and no sure links."""
    check_counts(alignments=predicted, references=gold)
    rows = [
        (len(links & line.sure) + len(links & line.possible), len(links) + len(line.sure))
        for links, line in zip(predicted, gold, strict=True)
    ]
    statistics = Statistics(
        rows=np.array(rows, dtype=np.float64),  # (sentences, 2): agreements, links
        formula=lambda sums: 1 - sums[0] / sums[1] if sums[1] else 0.0,
        signature="unit:word|links:sure,possible",
    )
    return score("aer", statistics, bootstrap, seed)


def precision_and_recall(predicted: Sequence[Set[Link]], gold: Sequence[Alignment]) -> tuple[float, float]:
    """Return the fraction of predicted links that are possible, and of sure links that are predicted; 1 for 0 / 0."""
    total, sure = sum(map(len, predicted)), sum(len(line.sure) for line in gold)
    possible = sum(len(links & line.possible) for links, line in zip(predicted, gold, strict=True))
    recalled = sum(len(links & line.sure) for links, line in zip(predicted, gold, strict=True))
    return possible / total if total else 1.0, recalled / sure if sure else 1.0


def parse_alignment(line: str, place: str) -> Alignment:
    """Parse one line of links; DataError with the place if one is malformed."""
    sure, possible = set(), set()
    for link in line.split():
        match = LINK.fullmatch(link)
        if match is None:
            raise DataError(f"{place}: {link!r:.40} is not a link; expected i-j (sure) or i?j (possible), counted from 0")
        pair = int(match[1]), int(match[3])
        possible.add(pair)
        if match[2] == "-":
            sure.add(pair)
    return Alignment(frozenset(sure), frozenset(possible))
