"""What a pair must be like to be trained on, and the pairs of a corpus that are.

A line with one of these problems is counted and skipped, or stops the run under `data.strict`:

    utf8     a side is not UTF-8
    nul      a side has a NUL byte
    empty    a side has nothing but white space
    long     a side has more than half a million characters: no model reads so many tokens, and tokenizing it fills the memory
    ratio    one side has more than `max_ratio` times the characters of the other, sides below 5 counting as 5

Too many such lines stop the run: see `check.py`. A text is otherwise left as it is; white space at its ends stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from heedful.data.sources import CorpusConfig, RawPair, place_of, raw_pairs
from heedful.errors import DataError

SHORTEST = 5  # characters; "是" for "Yes, it is." is no mistake
MAX_RATIO = 9.0
MAX_CHARACTERS = 500_000


class Pair(NamedTuple):
    line: int  # in its file, counted from 1
    source: str  # as the model reads it: with the corpus's tag in front
    target: str


class Problem(NamedTuple):
    kind: str
    line: int
    side: Literal["source", "target"]
    text: str
    sample: bytes = b""  # the beginning of a line that is not UTF-8


def check_pair(raw: RawPair, max_ratio: float = MAX_RATIO) -> Pair | Problem:
    """The pair as text, or the first thing that is wrong with it."""
    try:
        source, target = raw.source.decode(), raw.target.decode()
    except UnicodeDecodeError:
        return not_utf8(raw)
    if b"\0" in raw.source or b"\0" in raw.target:
        return Problem("nul", raw.line, "source" if b"\0" in raw.source else "target", "a NUL byte in the text")
    lengths = len(source.strip()), len(target.strip())
    if not all(lengths):
        return Problem("empty", raw.line, "source" if not lengths[0] else "target", "nothing but white space")
    if max(lengths) > MAX_CHARACTERS:
        side: Literal["source", "target"] = "source" if lengths[0] > MAX_CHARACTERS else "target"
        return Problem("long", raw.line, side, f"{max(lengths):,} characters; expected at most {MAX_CHARACTERS:,}")
    if max(lengths) > max_ratio * max(min(lengths), SHORTEST):
        return Problem(
            "ratio", raw.line, "source", f"{lengths[0]} characters, but {lengths[1]} in its translation: {source[:30]!r}"
        )
    return Pair(raw.line, source, target)


def not_utf8(raw: RawPair) -> Problem:
    sides: tuple[Literal["source", "target"], ...] = ("source", "target")
    for side, line in zip(sides, (raw.source, raw.target), strict=True):
        try:
            line.decode()
        except UnicodeDecodeError as error:
            return Problem("utf8", raw.line, side, f"byte {error.start + 1} is not UTF-8", line[error.start : error.start + 80])
    raise AssertionError("one side is not UTF-8")


def checked_pairs(corpus: CorpusConfig, *, max_ratio: float = MAX_RATIO, strict: bool = False) -> Iterator[Pair | Problem]:
    """Every line of the corpus, as a pair with its tag or as a problem; when strict the first problem is raised."""
    front = f"{corpus.tag} " if corpus.tag else ""
    for raw in raw_pairs(corpus):
        verdict = check_pair(raw, max_ratio)
        if isinstance(verdict, Pair):
            yield verdict._replace(source=front + verdict.source) if front else verdict
        elif strict:
            raise DataError(
                f"{place_of(corpus, verdict.line, verdict.side)}: {verdict.text}",
                hint="data.strict = false counts and skips such lines",
            )
        else:
            yield verdict


def pairs(corpus: CorpusConfig, *, max_ratio: float = MAX_RATIO) -> Iterator[Pair]:
    """The pairs of the corpus that can be trained on, in its order."""
    for verdict in checked_pairs(corpus, max_ratio=max_ratio):
        if isinstance(verdict, Pair):
            yield verdict


def sentences(
    corpora: Iterable[CorpusConfig], side: Literal["source", "target"], *, max_ratio: float = MAX_RATIO
) -> Iterator[str]:
    """One side's texts, without tags: what a tokenizer learns from. They are those of the pairs that are trained on."""
    for corpus in corpora:
        untagged = corpus.model_copy(update={"tag": None})
        for pair in pairs(untagged, max_ratio=max_ratio):
            yield pair.source if side == "source" else pair.target
