"""Check sentence pairs and yield those that are usable for training.

A line with one of these problems is counted and skipped; with `data.strict` it is an error:

    utf8     a side is not UTF-8
    nul      a side has a NUL byte
    empty    a side has only white space
    long     a side has more than half a million characters, which no model can use and which exhausts memory in tokenizing
    ratio    one side has more than `max_ratio` times the characters of the other, sides below 5 counting as 5

Of a corpus that `data.split` splits, the pairs of a part are yielded, with near-duplicate sources in the same part
(`hash_split.py`); lines with a problem belong to train.

Too many such lines are an error: see `unusable.py`. Texts are not changed otherwise; leading and trailing white space stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from heedful.data.fractions import SplitPart
from heedful.data.sources import CorpusConfig, CorpusPart, RawPair, place_of, raw_pairs
from heedful.data.unusable import LineProblem, Side, usable_text
from heedful.errors import DataError

MIN_LENGTH = 5  # characters; "是" for "Yes, it is." is correct
MAX_RATIO = 9.0
MAX_CHARACTERS = 500_000


class Pair(NamedTuple):
    line: int  # in its file, counted from 1
    source: str  # with the corpus's tag prepended
    target: str


def check_pair(raw: RawPair, max_ratio: float = MAX_RATIO) -> Pair | LineProblem:
    """Return the pair as text, or its first problem."""
    source, target = usable_text(raw.source, raw.line, "source"), usable_text(raw.target, raw.line, "target")
    if isinstance(source, LineProblem):
        return source
    if isinstance(target, LineProblem):
        return target
    lengths = len(source.strip()), len(target.strip())
    if not all(lengths):
        return LineProblem("empty", raw.line, "source" if not lengths[0] else "target", "the text is empty or white space")
    if max(lengths) > MAX_CHARACTERS:
        side: Side = "source" if lengths[0] > MAX_CHARACTERS else "target"
        return LineProblem("long", raw.line, side, f"{max(lengths):,} characters; expected at most {MAX_CHARACTERS:,}")
    if max(lengths) > max_ratio * max(min(lengths), MIN_LENGTH):
        return LineProblem(
            "ratio", raw.line, "source", f"{lengths[0]} characters, but {lengths[1]} in the translation: {source[:30]!r}"
        )
    return Pair(raw.line, source, target)


def check_pairs(corpus: CorpusConfig, *, max_ratio: float = MAX_RATIO, strict: bool = False) -> Iterator[Pair | LineProblem]:
    """Yield every line of the corpus, or of its part, as a pair with its tag or as a problem; if strict, raise the first
    problem."""
    results = check_every_pair(corpus, max_ratio, strict)
    return select_pairs(list(results), corpus.part) if isinstance(corpus, CorpusPart) else results


def select_pairs(results: list[Pair | LineProblem], part: SplitPart) -> Iterator[Pair | LineProblem]:
    """The lines of a part, in order."""
    from heedful.data.hash_split import select_part  # numpy, which configs load without

    usable = [result for result in results if isinstance(result, Pair)]
    chosen = {pair.line for pair in select_part(usable, [pair.source for pair in usable], part)}
    for result in results:
        if result.line in chosen if isinstance(result, Pair) else part.name == "train":
            yield result


def check_every_pair(corpus: CorpusConfig, max_ratio: float, strict: bool) -> Iterator[Pair | LineProblem]:
    prefix = f"{corpus.tag} " if corpus.tag else ""
    for raw in raw_pairs(corpus):
        result = check_pair(raw, max_ratio)
        if isinstance(result, Pair):
            yield result._replace(source=prefix + result.source) if prefix else result
        elif strict:
            raise DataError(
                f"{place_of(corpus, result.line, result.side)}: {result.text}",
                hint="correct the line, or set data.strict = false to count and skip such lines",
            )
        else:
            yield result


def pairs(corpus: CorpusConfig, *, max_ratio: float = MAX_RATIO) -> Iterator[Pair]:
    """Yield the usable pairs of the corpus, in order."""
    for result in check_pairs(corpus, max_ratio=max_ratio):
        if isinstance(result, Pair):
            yield result


def sentences(corpora: Iterable[CorpusConfig], side: Side, *, max_ratio: float = MAX_RATIO) -> Iterator[str]:
    """Yield the texts of one side of all usable pairs, without tags: the training text of a tokenizer."""
    for corpus in corpora:
        untagged = corpus.model_copy(update={"tag": None})
        for pair in pairs(untagged, max_ratio=max_ratio):
            yield pair.source if side == "source" else pair.target
