"""Cleaning of parallel corpora: each pair is kept, or counted at the first filter that drops it.

    unusable       not UTF-8, NUL bytes, an empty side, too long, length ratio (`pairs.py`)
    words          a side has too many words
    copy           both sides are the same text
    script         fewer than 3/4 of the letters of a side are of its script
    language       a side is in another language (py3langid: naive Bayes over byte n-grams)
    duplicate      the same pair occurred before
    near           a similar pair occurred before: MinHash of both sides (`minhash.py`)
    score          a model gives the target a mean log-probability per token below the limit

The corpus is read twice: the first pass applies the filters of single pairs and stores hashes of the others in temporary files,
the second one scores and writes. Memory is that of a chunk, and ten bytes for each line.
"""

from __future__ import annotations

import json
import unicodedata
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.data.check import hash64
from heedful.data.hash_split import normalize
from heedful.data.minhash import near_duplicates, repeated, signatures
from heedful.data.pairs import MAX_RATIO, Pair, check_pairs
from heedful.data.report import CheckReport, CorpusCheck, Finding
from heedful.data.sources import CorpusConfig, place_of, title_of
from heedful.data.unusable import LineProblem, Side, UnusableLines
from heedful.errors import ConfigError, DataError, nearest
from heedful.evaluation.tables import inflect
from heedful.storage.mapping import Growing
from heedful.storage.writing import output_file

CHUNK = 4096  # pairs that are hashed or scored together
SCRIPT_LETTERS = 16  # letters of a script, at least
LONG_NAMES = (  # of scripts, of several words
    "CANADIAN SYLLABICS",
    "KAYAH LI",
    "MEETEI MAYEK",
    "NEW TAI LUE",
    "OL CHIKI",
    "SYLOTI NAGRI",
    "TAI LE",
    "TAI THAM",
    "TAI VIET",
)
LETTER_FORMS = ("MODIFIER", "FULLWIDTH", "HALFWIDTH", "DOUBLE-STRUCK")  # first words of names of letters of several scripts
SHARE = 0.75  # of the letters of a side that must be of its script
OPTIONS = {  # of `heed data clean`, by the problem that they cause
    "ratio": "--max-ratio",
    "words": "--max-words",
    "copy": "--drop-copies",
    "script": "--scripts",
    "language": "--languages",
    "near": "--near-duplicates",
    "score": "--min-score",
}
LETTERS = 20  # the language of a shorter text cannot be identified reliably; it is kept

Scorer = Callable[[Sequence[str], Sequence[str]], Sequence[float | None]]  # mean log p per token; None: too long for the model
Sides = tuple[str, str]


@dataclass(frozen=True)
class Filters:
    """The options of cleaning; None or False: the filter is off."""

    max_ratio: float = MAX_RATIO
    max_words: int | None = None
    drop_copies: bool = False
    scripts: Sides | None = None  # of source and target, as in the names of Unicode characters, in any case: latin, cyrillic
    languages: Sides | None = None  # codes of py3langid
    duplicates: bool = True
    near_duplicates: float | None = None  # similarity from which on a pair is a near-duplicate
    min_score: float | None = None


class Kept(NamedTuple):
    """The result of the first pass."""

    lines: NDArray[np.int64]  # of the pairs that passed
    duplicate: NDArray[np.bool_]
    near: NDArray[np.bool_]


def clean(corpus: CorpusConfig, filters: Filters, output: Path, score: Scorer | None = None) -> CheckReport:
    """Write the pairs that pass all filters, as .jsonl or .tsv by the suffix, and return the report."""
    render = writer_of(output)
    if output.is_file():
        raise ConfigError(f"{output} exists already; expected a new file", hint="choose another name with --output")
    check_filters(filters, score)
    dropped = UnusableLines(lambda problem: place_of(corpus, problem.line, problem.side))
    kept = 0
    with output_file(output) as file:
        total, passed = first_pass(corpus, filters, dropped)
        for pair in second_pass(corpus, filters, passed, dropped, score):
            file.write(render(pair))
            kept += 1
        if kept == 0:
            raise nothing_kept(corpus, total, dropped.findings())
    findings = tuple(replace(finding, action="dropped") for finding in dropped.findings())
    check = CorpusCheck("train", title_of(corpus), total, kept, findings, np.zeros(0, np.int64))
    return CheckReport((check,))


def nothing_kept(corpus: CorpusConfig, total: int, findings: Sequence[Finding]) -> DataError:
    """The error of filters that drop every pair: names the one that drops most."""
    if total == 0:
        return DataError(f"{title_of(corpus)} has no pairs; expected at least one")
    most = max(findings, key=lambda finding: finding.count)
    place, text = most.examples[0]
    return DataError(
        f"{title_of(corpus)} has {total:,} {inflect('lines', total)}, but no pair passes the filters; "
        f"{most.count:,} {most.what}, the first at {place}: {text}",
        hint=f"change {OPTIONS[most.kind]}" if most.kind in OPTIONS else "check these lines",
    )


def first_pass(corpus: CorpusConfig, filters: Filters, dropped: UnusableLines) -> tuple[int, Kept]:
    """Apply the filters of single pairs; return the number of lines, and which of the others are duplicates."""
    lines, total = array("q"), 0
    tests = pair_tests(filters)
    with Growing(np.uint64) as hashes, Growing(np.uint32) as numbers:

        def passing() -> Iterator[Pair]:
            nonlocal total
            for result in check_pairs(corpus, max_ratio=filters.max_ratio):
                total += 1
                problem = first_problem(result, tests)
                if problem is not None:
                    dropped.add(problem)
                elif isinstance(result, Pair):
                    lines.append(result.line)
                    yield result

        for chunk in chunked(passing()):
            if filters.duplicates:
                hashes.append(np.array([hash64(f"{pair.source}\0{pair.target}".encode()) for pair in chunk], np.uint64))
            if filters.near_duplicates is not None:
                texts = [f"{normalize(pair.source)}\t{normalize(pair.target)}" for pair in chunk]
                numbers.append(signatures(texts).ravel())
        none = np.zeros(len(lines), bool)
        duplicate = repeated(hashes.array()) if filters.duplicates else none
        near = none
        if filters.near_duplicates is not None:
            near = near_duplicates(numbers.array().reshape(len(lines), -1), filters.near_duplicates) & ~duplicate
    return total, Kept(np.frombuffer(lines, np.int64), duplicate, near)


def second_pass(
    corpus: CorpusConfig, filters: Filters, passed: Kept, dropped: UnusableLines, score: Scorer | None
) -> Iterator[Pair]:
    """Yield the pairs that are neither duplicates nor below the score."""
    for chunk in chunked(without_duplicates(corpus, filters, passed, dropped)):
        if score is None or filters.min_score is None:
            yield from chunk
            continue
        scores = score([pair.source for pair in chunk], [pair.target for pair in chunk])
        for pair, value in zip(chunk, scores, strict=True):
            if value is not None and value >= filters.min_score:
                yield pair
                continue
            found = "it is too long for the model" if value is None else f"{value:.2f} per token, below {filters.min_score:g}"
            dropped.add(LineProblem("score", pair.line, "target", f"{found}: {pair.target[:40]!r}"))


def without_duplicates(corpus: CorpusConfig, filters: Filters, passed: Kept, dropped: UnusableLines) -> Iterator[Pair]:
    """Yield the pairs that passed the first pass and are no duplicates."""
    at, count = 0, len(passed.lines)
    for result in check_pairs(corpus, max_ratio=filters.max_ratio):
        if at == count:
            return
        if not isinstance(result, Pair) or result.line != passed.lines[at]:
            continue
        kind = "duplicate" if passed.duplicate[at] else "near" if passed.near[at] else None
        at += 1
        if kind is None:
            yield result
        else:
            dropped.add(LineProblem(kind, result.line, "source", repr(result.source[:40])))


Test = Callable[[Pair], LineProblem | None]


def first_problem(result: Pair | LineProblem, tests: Sequence[Test]) -> LineProblem | None:
    if isinstance(result, LineProblem):
        return result
    return next((problem for test in tests if (problem := test(result)) is not None), None)


def pair_tests(filters: Filters) -> list[Test]:
    """The filters of single pairs that are on, cheap ones first."""
    tests: list[Test] = []
    if filters.max_words is not None:
        tests.append(lambda pair: too_many_words(pair, filters.max_words or 0))
    if filters.drop_copies:
        tests.append(copied)
    if filters.scripts is not None:
        scripts = filters.scripts[0].upper(), filters.scripts[1].upper()
        tests.append(lambda pair: other_script(pair, scripts))
    if filters.languages is not None:
        tests.append(language_test(filters.languages))
    return tests


def too_many_words(pair: Pair, most: int) -> LineProblem | None:
    for side, text in sides(pair):
        if (count := len(text.split())) > most:
            return LineProblem("words", pair.line, side, f"{count:,} words, expected at most {most:,}")
    return None


def copied(pair: Pair) -> LineProblem | None:
    if pair.source.strip() != pair.target.strip():
        return None
    return LineProblem("copy", pair.line, "source", repr(pair.source[:40]))


def other_script(pair: Pair, scripts: Sides) -> LineProblem | None:
    for (side, text), script in zip(sides(pair), scripts, strict=True):
        letters = [script_of(character) for character in text if character.isalpha()]
        if letters and letters.count(script) < SHARE * len(letters):
            share = letters.count(script) / len(letters)
            return LineProblem("script", pair.line, side, f"{share:.0%} of the letters are {script}: {text[:40]!r}")
    return None


@lru_cache(maxsize=1 << 16)
def script_of(character: str) -> str:
    """The script of a letter: its Unicode name begins with it, as with LATIN, GREEK, CYRILLIC, ARABIC, CJK, HANGUL, …"""
    name = unicodedata.name(character, "UNKNOWN")
    return next((script for script in LONG_NAMES if name.startswith(f"{script} ")), name.split(" ")[0])


def language_test(languages: Sides) -> Test:
    model = import_identifier()
    unknown = [language for language in languages if language not in model.labels]
    if unknown:
        known = ", ".join(sorted(model.labels))
        raise ConfigError(f"--languages: given {unknown[0]!r}, expected two of: {known}")

    def test(pair: Pair) -> LineProblem | None:
        for (side, text), expected in zip(sides(pair), languages, strict=True):
            if sum(map(str.isalpha, text)) < LETTERS:
                continue
            language, _ = model.classify(text)
            if language != expected:
                return LineProblem("language", pair.line, side, f"identified as {language}, expected {expected}: {text[:40]!r}")
        return None

    return test


def import_identifier() -> Any:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError as error:
        raise ConfigError("--languages needs py3langid, which is not installed", hint="pip install 'heedful[clean]'") from error
    return LanguageIdentifier.from_model_file(MODEL_FILE)


def sides(pair: Pair) -> tuple[tuple[Side, str], tuple[Side, str]]:
    return ("source", pair.source), ("target", pair.target)


def chunked(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    remaining = iter(pairs)
    return iter(lambda: list(islice(remaining, CHUNK)), [])


def check_filters(filters: Filters, score: Scorer | None) -> None:
    """Raise an error for options that have no effect, and for scripts that do not exist."""
    if (score is None) != (filters.min_score is None):
        given, other = ("--score", "--min-score") if score is not None else ("--min-score", "--score")
        raise ConfigError(f"{given} is given without {other}; expected both", hint="add --score RUN --min-score -3")
    for script in filters.scripts or ():
        if script.upper() not in all_scripts():
            known = sorted(map(str.lower, all_scripts()))
            close = nearest(script.lower(), known)
            raise ConfigError(
                f"--scripts: given {script!r}, expected two of: {', '.join(known)}",
                hint=f"did you mean {close!r}?" if close else None,
            )


@lru_cache(maxsize=1)
def all_scripts() -> frozenset[str]:
    """The scripts with at least SCRIPT_LETTERS letters in the Basic Multilingual Plane."""
    counts = Counter(script_of(chr(code)) for code in range(1 << 16) if chr(code).isalpha())
    return frozenset(script for script, count in counts.items() if count >= SCRIPT_LETTERS and script not in LETTER_FORMS)


def writer_of(output: Path) -> Callable[[Pair], str]:
    """How a pair is written: by the suffix of the file."""
    if output.suffix == ".jsonl":
        return lambda pair: json.dumps({"source": pair.source, "target": pair.target}, ensure_ascii=False) + "\n"
    if output.suffix == ".tsv":
        return lambda pair: f"{one_cell(pair.source)}\t{one_cell(pair.target)}\n"
    raise ConfigError(f"--output: given {str(output)!r}, expected a name that ends in .jsonl or .tsv")


def one_cell(text: str) -> str:
    """A text without tabs and line breaks, which would end the cell."""
    return text.replace("\t", " ").replace("\n", " ")
