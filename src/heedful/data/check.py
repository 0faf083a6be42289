"""The check before training: read every line once and report each problem with its file and line.

    unequal line counts, malformed files            error                         (a DataError from `sources.py`)
    invalid UTF-8, NUL bytes, empty sides, ratios   counted and skipped           (error if strict)
    more than `max_unusable` of a corpus skipped    error, after the report
    source and target are the same text             error
    duplicates: a repeated training pair            counted and kept              (dropped with drop_duplicates)
    leaks: a training source that is also a         counted and kept              (dropped with drop_leaks)
           source in valid or test

Texts are compared as model input, tag included, by 64-bit hashes, which are stored in temporary files, 24 bytes for a pair, and
sorted in partitions: memory does not grow with the corpus, except for one byte for a pair.
Pairs are only dropped from training data, because validation and test data determine scores and must stay unchanged.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from heedful.data.minhash import repeated
from heedful.data.pairs import MAX_RATIO, Pair, check_pairs
from heedful.data.report import CheckReport, CorpusCheck, Example, Finding
from heedful.data.sources import TABLES, CorpusConfig, CorpusPart, files_of, place_of, title_of
from heedful.data.splits import DataConfig, Splits, splits_of
from heedful.data.unusable import EXAMPLES, UnusableLines
from heedful.errors import DataError
from heedful.storage.mapping import Growing, collect

BLOCK = 1 << 16  # pairs whose hashes are in memory

Hashes = NDArray[np.uint64]
Lines = NDArray[np.int64]


@dataclass(frozen=True)
class Rules:
    """How to handle questionable pairs; the keys of [data] with the same names."""

    strict: bool = False
    max_ratio: float = MAX_RATIO
    drop_duplicates: bool = False
    drop_leaks: bool = False


@dataclass(frozen=True)
class CorpusScan:
    """The result of one pass over a corpus."""

    split: str
    corpus: CorpusConfig
    total: int
    skipped: tuple[Finding, ...]
    conversions: tuple[str, ...]  # commands for files that are not UTF-8
    lines: Lines  # of the usable pairs
    pairs: Hashes
    sources: Hashes


def check_data(data: DataConfig) -> CheckReport:
    rules = Rules(data.strict, data.max_ratio, data.drop_duplicates, data.drop_leaks)
    return check_corpora(splits_of(data), rules)


def check_corpora(splits: Splits, rules: Rules | None = None) -> CheckReport:
    """Read all corpora and return a report on them, in the order of the splits."""
    rules = rules or Rules()
    scans = [
        scan_corpus(split, corpus, rules) for split, corpora in zip(Splits._fields, splits, strict=True) for corpus in corpora
    ]
    train = [scan for scan in scans if scan.split == "train"]
    held_out = [scan for scan in scans if scan.split != "train"]
    duplicates = find_duplicates(train)
    leaks = find_leaks(train, held_out)
    checks = [
        summarize_check(scan, duplicate, leak, rules) for scan, duplicate, leak in zip(train, duplicates, leaks, strict=True)
    ]
    for scan in held_out:
        (duplicate,) = find_duplicates([scan])
        checks.append(summarize_check(scan, duplicate, Matches(np.zeros(0, np.int64), ()), Rules()))
    return CheckReport(tuple(checks))


def scan_corpus(split: str, corpus: CorpusConfig, rules: Rules) -> CorpusScan:
    """Read the corpus once: count problems and hash the usable pairs."""
    unusable = UnusableLines(lambda problem: place_of(corpus, problem.line, problem.side))
    total = copied = 0
    with closing(Columns()) as columns:
        for result in check_pairs(corpus, max_ratio=rules.max_ratio, strict=rules.strict):
            total += 1
            if isinstance(result, Pair):
                copied += result.source == result.target
                source = result.source.encode()
                columns.append(result.line, hash64(source + b"\0" + result.target.encode()), hash64(source))
            else:
                unusable.add(result)
        lines, pair_hashes, source_hashes = columns.arrays()
    refuse_copy(corpus, copied, total)
    if isinstance(corpus, CorpusPart) and not len(lines):
        raise DataError(
            corpus.part.empty(title_of(corpus), "pair") + unusable.note(), hint="use a larger fraction, or more pairs"
        )
    return CorpusScan(
        split,
        corpus,
        total,
        unusable.findings(),
        () if corpus.form in TABLES else unusable.conversions(files_of(corpus)),
        lines,
        pair_hashes,
        source_hashes,
    )


class Columns:
    """Line, hash of the pair and hash of the source of every usable pair, in temporary files."""

    def __init__(self) -> None:
        self.files = Growing(np.int64), Growing(np.uint64), Growing(np.uint64)
        self.waiting = array("q"), array("Q"), array("Q")

    def append(self, *row: int) -> None:
        for column, value in zip(self.waiting, row, strict=True):
            column.append(value)
        if len(self.waiting[0]) == BLOCK:
            self.flush()

    def flush(self) -> None:
        for file, column in zip(self.files, self.waiting, strict=True):
            file.append(np.frombuffer(column, file.kind))
        self.waiting = array("q"), array("Q"), array("Q")

    def arrays(self) -> tuple[NDArray[np.int64], Hashes, Hashes]:
        self.flush()
        lines, pairs, sources = (file.array() for file in self.files)
        return lines, pairs, sources

    def close(self) -> None:
        """Close the files; arrays of them stay."""
        for file in self.files:
            file.close()


def refuse_copy(corpus: CorpusConfig, copied: int, total: int) -> None:
    """Raise if both files have the same text: one was given twice, or copied to the wrong name."""
    if len(files_of(corpus)) == 2 and copied == total > 1:
        source, target = files_of(corpus)
        raise DataError(
            f"{source} and {target} have the same text in all {total:,} lines; expected a source and its translation",
            hint="check the file names; to train a model that copies its input, give both sides in one .tsv file",
        )


def hash64(text: bytes) -> int:
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")


@dataclass(frozen=True)
class Matches:
    """Duplicates or leaks in one corpus: their positions in its scan, and examples for the report."""

    positions: Lines
    examples: tuple[Example, ...]


def find_duplicates(scans: Sequence[CorpusScan]) -> list[Matches]:
    """Return, for each scan, the pairs that occurred before, in it or in an earlier one."""
    if not scans:
        return []
    hashes = scans[0].pairs if len(scans) == 1 else collect((scan.pairs for scan in scans), np.uint64)
    again = repeated(hashes)
    matches = []
    start = 0
    for scan in scans:
        positions = np.flatnonzero(again[start : start + len(scan.lines)])
        first = [int(np.flatnonzero(hashes == scan.pairs[at])[0]) for at in positions[:EXAMPLES]]
        matches.append(describe_matches(scan, positions, "the same pair as", [locate_pair(scans, at) for at in first]))
        start += len(scan.lines)
    return matches


def find_leaks(train: Sequence[CorpusScan], held_out: Sequence[CorpusScan]) -> list[Matches]:
    """Return, for each training scan, the pairs whose source is also a source in held-out data."""
    hashes = np.concatenate([np.zeros(0, np.uint64), *(scan.sources for scan in held_out)])
    distinct = np.unique(hashes)
    matches = []
    for scan in train:
        blocks = (scan.sources[start : start + BLOCK] for start in range(0, len(scan.sources), BLOCK))
        leaked = [at * BLOCK + np.flatnonzero(np.isin(block, distinct)) for at, block in enumerate(blocks)]
        positions = np.concatenate([np.zeros(0, np.int64), *leaked])
        first = [int(np.flatnonzero(hashes == scan.sources[at])[0]) for at in positions[:EXAMPLES]]
        matches.append(describe_matches(scan, positions, "the source is also in", [locate_pair(held_out, at) for at in first]))
    return matches


def describe_matches(scan: CorpusScan, positions: Lines, words: str, others: list[str]) -> Matches:
    examples = tuple(
        Example(place_of(scan.corpus, int(scan.lines[at])), f"{words} {other}")
        for at, other in zip(positions, others, strict=False)
    )
    return Matches(positions, examples)


def locate_pair(scans: Sequence[CorpusScan], position: int) -> str:
    """Return file and line of the pair at this position in the concatenation of all scans."""
    for scan in scans:
        if position < len(scan.lines):
            return place_of(scan.corpus, int(scan.lines[position]))
        position -= len(scan.lines)
    raise AssertionError("the position is beyond the last scan")


def summarize_check(scan: CorpusScan, duplicates: Matches, leaks: Matches, rules: Rules) -> CorpusCheck:
    findings: list[Finding] = list(scan.skipped)
    dropped: list[Lines] = [np.zeros(0, np.int64)]
    for kind, matches, drop in (("duplicate", duplicates, rules.drop_duplicates), ("leak", leaks, rules.drop_leaks)):
        if len(matches.positions):
            findings.append(Finding(kind, len(matches.positions), "dropped" if drop else "kept", matches.examples))
        if drop:
            dropped.append(matches.positions)
    positions = np.unique(np.concatenate(dropped))
    return CorpusCheck(
        split=scan.split,
        title=title_of(scan.corpus),
        total=scan.total,
        kept=len(scan.lines) - len(positions),
        findings=tuple(findings),
        dropped=scan.lines[positions],
        conversions=scan.conversions,
    )
