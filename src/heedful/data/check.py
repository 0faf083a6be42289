"""The check before training: read every line once, and say what is wrong with which line of which file.

    unequal line counts, a file of broken form      stop, always                  (a DataError from `sources.py`)
    bad UTF-8, NUL bytes, empty sides, ratios       counted and skipped           (stop under strict)
    more than `max_unusable` of a corpus skipped    stop, after the report
    source and target are the same text             stop, always
    duplicates: a training pair met before          counted and kept              (dropped under drop_duplicates)
    leaks: a training source that valid or test     counted and kept              (dropped under drop_leaks)
           has as a source too

Texts are compared as the model reads them, tag included, by 64-bit hashes: 24 bytes for a pair, sorted in numpy.
Only training is ever dropped from: what is validated and tested on decides a score and stays as it is.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from heedful.data.pairs import MAX_RATIO, Pair, checked_pairs
from heedful.data.report import CheckReport, CorpusCheck, Example, Finding
from heedful.data.sources import CorpusConfig, files_of, place_of, title_of
from heedful.data.splits import DataConfig, Splits, splits_of
from heedful.errors import DataError
from heedful.storage.reading import convert_command, likely_encoding

EXAMPLES = 5  # named in a report for each kind of problem
SAMPLE = 4096  # bytes by which an encoding is told

Hashes = NDArray[np.uint64]
Lines = NDArray[np.int64]


@dataclass(frozen=True)
class Rules:
    """What is done with pairs that look wrong; the keys of [data] of the same names."""

    strict: bool = False
    max_ratio: float = MAX_RATIO
    drop_duplicates: bool = False
    drop_leaks: bool = False


@dataclass(frozen=True)
class Reading:
    """What one pass over a corpus leaves behind."""

    split: str
    corpus: CorpusConfig
    total: int
    skipped: tuple[Finding, ...]
    conversions: tuple[str, ...]  # commands for files that are not UTF-8
    lines: Lines  # of the pairs that are left
    pairs: Hashes
    sources: Hashes


def check_data(data: DataConfig) -> CheckReport:
    rules = Rules(data.strict, data.max_ratio, data.drop_duplicates, data.drop_leaks)
    return check_corpora(splits_of(data), rules)


def check_corpora(splits: Splits, rules: Rules | None = None) -> CheckReport:
    """Reads all corpora and reports; the corpora of the report stand in the order of the splits."""
    rules = rules or Rules()
    readings = [read(split, corpus, rules) for split, corpora in zip(Splits._fields, splits, strict=True) for corpus in corpora]
    train = [reading for reading in readings if reading.split == "train"]
    held_out = [reading for reading in readings if reading.split != "train"]
    repeats = find_repeats(train)
    leaks = find_leaks(train, held_out)
    checks = [
        summarize_check(reading, repeat, leak, rules) for reading, repeat, leak in zip(train, repeats, leaks, strict=True)
    ]
    for reading in held_out:
        (repeat,) = find_repeats([reading])
        checks.append(summarize_check(reading, repeat, Marks(np.zeros(0, np.int64), ()), Rules()))
    return CheckReport(tuple(checks))


def read(split: str, corpus: CorpusConfig, rules: Rules) -> Reading:
    """One pass over the corpus: problems are counted, the hashes of good pairs are kept."""
    counts: dict[str, int] = {}
    examples: dict[str, list[Example]] = {}
    samples: dict[str, bytes] = {}  # of each side, what is not UTF-8
    lines, pair_hashes, source_hashes = array("q"), array("Q"), array("Q")
    total = copied = 0
    for verdict in checked_pairs(corpus, max_ratio=rules.max_ratio, strict=rules.strict):
        total += 1
        if isinstance(verdict, Pair):
            copied += verdict.source == verdict.target
            source = verdict.source.encode()
            lines.append(verdict.line)
            source_hashes.append(hash64(source))
            pair_hashes.append(hash64(source + b"\0" + verdict.target.encode()))
            continue
        counts[verdict.kind] = counts.get(verdict.kind, 0) + 1
        seen = examples.setdefault(verdict.kind, [])
        if len(seen) < EXAMPLES:
            seen.append(Example(place_of(corpus, verdict.line, verdict.side), verdict.text))
        if verdict.sample and len(samples.get(verdict.side, b"")) < SAMPLE:
            samples[verdict.side] = samples.get(verdict.side, b"") + verdict.sample
    refuse_copy(corpus, copied, total)
    skipped = tuple(Finding(kind, counts[kind], "skipped", tuple(examples[kind])) for kind in counts)
    return Reading(
        split,
        corpus,
        total,
        skipped,
        conversions(corpus, samples),
        np.frombuffer(lines, np.int64),
        np.frombuffer(pair_hashes, np.uint64),
        np.frombuffer(source_hashes, np.uint64),
    )


def refuse_copy(corpus: CorpusConfig, copied: int, total: int) -> None:
    """Two files of the same content: one of them was given twice, or copied to the wrong name."""
    if len(files_of(corpus)) == 2 and copied == total > 1:
        source, target = files_of(corpus)
        raise DataError(
            f"{source} and {target} have the same text in all {total:,} lines; expected a source and its translation",
            hint="check the files; a model that is to copy can be trained from one .tsv file",
        )


def conversions(corpus: CorpusConfig, samples: dict[str, bytes]) -> tuple[str, ...]:
    """A command for each file that has lines which are not UTF-8."""
    files = files_of(corpus)
    commands = [
        convert_command(str(files[0 if side == "source" else -1]), likely_encoding(sample)) for side, sample in samples.items()
    ]
    return tuple(dict.fromkeys(commands))


def hash64(text: bytes) -> int:
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")


@dataclass(frozen=True)
class Marks:
    """Pairs of one reading that were singled out: their positions in it, and the first few in words."""

    positions: Lines
    examples: tuple[Example, ...]


def find_repeats(readings: Sequence[Reading]) -> list[Marks]:
    """For each reading the pairs that were met before, in it or in one before it."""
    if not readings:
        return []
    hashes = np.concatenate([reading.pairs for reading in readings])
    order = np.argsort(hashes, kind="stable")
    again = np.zeros(len(hashes), bool)
    again[order[1:]] = hashes[order[1:]] == hashes[order[:-1]]
    marks = []
    start = 0
    for reading in readings:
        positions = np.flatnonzero(again[start : start + len(reading.lines)])
        first = [int(np.flatnonzero(hashes == reading.pairs[at])[0]) for at in positions[:EXAMPLES]]
        marks.append(add_marks(reading, positions, "the same pair as", [place(readings, at) for at in first]))
        start += len(reading.lines)
    return marks


def find_leaks(train: Sequence[Reading], held_out: Sequence[Reading]) -> list[Marks]:
    """For each reading of train the pairs whose source is also a source in one of the others."""
    hashes = np.concatenate([np.zeros(0, np.uint64), *(reading.sources for reading in held_out)])
    marks = []
    for reading in train:
        positions = np.flatnonzero(np.isin(reading.sources, hashes))
        first = [int(np.flatnonzero(hashes == reading.sources[at])[0]) for at in positions[:EXAMPLES]]
        marks.append(add_marks(reading, positions, "the source is also in", [place(held_out, at) for at in first]))
    return marks


def add_marks(reading: Reading, positions: Lines, words: str, others: list[str]) -> Marks:
    examples = tuple(
        Example(place_of(reading.corpus, int(reading.lines[at])), f"{words} {other}")
        for at, other in zip(positions, others, strict=False)
    )
    return Marks(positions, examples)


def place(readings: Sequence[Reading], position: int) -> str:
    """The place of a pair that is known by its position in the concatenation of all readings."""
    for reading in readings:
        if position < len(reading.lines):
            return place_of(reading.corpus, int(reading.lines[position]))
        position -= len(reading.lines)
    raise AssertionError("a position beyond the last reading")


def summarize_check(reading: Reading, repeats: Marks, leaks: Marks, rules: Rules) -> CorpusCheck:
    findings: list[Finding] = list(reading.skipped)
    dropped: list[Lines] = [np.zeros(0, np.int64)]
    for kind, marks, drop in (("duplicate", repeats, rules.drop_duplicates), ("leak", leaks, rules.drop_leaks)):
        if len(marks.positions):
            findings.append(Finding(kind, len(marks.positions), "dropped" if drop else "kept", marks.examples))
        if drop:
            dropped.append(marks.positions)
    positions = np.unique(np.concatenate(dropped))
    return CorpusCheck(
        split=reading.split,
        title=title_of(reading.corpus),
        total=reading.total,
        kept=len(reading.lines) - len(positions),
        findings=tuple(findings),
        dropped=reading.lines[positions],
        conversions=reading.conversions,
    )
