"""The corpus: an endless, repeatable stream of distinct sentences, divided by the hash of their source.

    stream   draw a family by weight, take the next number of its own shuffled sequence, build that sentence
    split    SHA-256 of the source, as a number, modulo 20: 0 is test, 1 is valid, the rest is train

A number is taken once, and no sentence has two numbers, so nothing need be remembered to avoid repetition.
"""

from __future__ import annotations

import hashlib
import random
from bisect import bisect
from collections.abc import Iterator, Sequence
from itertools import accumulate, product
from typing import Literal, NamedTuple

from heedful.data.grammar.actions import IDIOMS, act
from heedful.data.grammar.clauses import Clause, Mood, adjective_phrase, copula
from heedful.data.grammar.lexicon import ADJECTIVES
from heedful.data.grammar.participants import MYSELF
from heedful.data.grammar.phrases import compose, source_words
from heedful.data.grammar.rules import families
from heedful.data.grammar.spaces import Family, Space, shuffled
from heedful.errors import ConfigError, DataError

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")


class Sentence(NamedTuple):
    """A pair with its gold alignment and both trees; all indices count words separated by spaces."""

    source: str
    target: str
    alignment: frozenset[tuple[int, int]]  # (source word, target word)
    source_heads: tuple[int, ...]  # -1 for the root
    source_labels: tuple[str, ...]
    target_heads: tuple[int, ...]
    target_labels: tuple[str, ...]


def split_of(source: str) -> Split:
    """Which split a source sentence belongs to."""
    bucket = int.from_bytes(hashlib.sha256(source.encode()).digest()[:8]) % 20
    return "test" if bucket == 0 else "valid" if bucket == 1 else "train"


def _written(words: Sequence[str], asks: bool) -> str:
    text = " ".join(words)
    return text[0].upper() + text[1:] + ("?" if asks else "")


def source_text(clause: Clause) -> str:
    return _written(source_words(clause.frame, clause.parts), clause.asks)


def finish(clause: Clause) -> Sentence:
    source, target, links = compose(clause.frame, clause.parts)
    return Sentence(
        _written(source.words, clause.asks),
        _written(target.words, clause.asks),
        frozenset(links),
        source.heads,
        source.labels,
        target.heads,
        target.labels,
    )


def stream(members: Sequence[Family], seed: int) -> Iterator[Clause]:
    """Every clause of the families once, in an order that depends on the seed alone."""
    draw = random.Random(seed)
    sizes = [family.size for family in members]
    keys = [draw.getrandbits(64) for _ in members]
    taken = [0] * len(members)
    alive = list(range(len(members)))
    while alive:
        totals = list(accumulate(members[i].weight for i in alive))
        exhausted = False
        while not exhausted:
            place = bisect(totals, draw.random() * totals[-1])
            chosen = alive[min(place, len(alive) - 1)]
            yield members[chosen].at(shuffled(taken[chosen], sizes[chosen], keys[chosen]))
            taken[chosen] += 1
            exhausted = taken[chosen] == sizes[chosen]
        alive.remove(chosen)


def generate(split: Split, count: int, seed: int = 0) -> Iterator[Sentence]:
    """The first `count` sentences of a split; no source comes twice, and more only adds to the end."""
    if split not in SPLITS:
        raise ConfigError(f"unknown split {split!r}; expected one of: {', '.join(SPLITS)}")
    given = 0
    clauses = stream(families(), seed)
    while given < count:
        clause = next(clauses, None)
        if clause is None:
            raise DataError(f"the built-in corpus has {given} sentences in {split!r}, but {count} were asked for")
        if split_of(source_text(clause)) == split:
            given += 1
            yield finish(clause)


def count_pairs() -> int:
    """How many distinct pairs the grammar writes."""
    return sum(family.size for family in families())


def derivations(source: str) -> Iterator[Sentence]:
    """Every way in which the grammar writes this source; there is at most one."""
    asks = source.endswith("?")
    words = source.removesuffix("?").split()
    known = {*words, *(word[0].lower() + word[1:] for word in words[:1])}
    fitting: dict[int, list[object]] = {}

    def items(space: Space[object]) -> list[object]:
        if id(space) not in fitting:
            fitting[id(space)] = list(space.among(known))
        return fitting[id(space)]

    for family in families():
        if all(items(space) for space in family.spaces):
            for chosen in product(*map(items, family.spaces)):
                clause = family.build(*chosen)
                if clause.asks == asks and source_text(clause) == source:
                    yield finish(clause)


def translate_exactly(source: str) -> Sentence | None:
    """The sentence with this source, if the grammar writes it."""
    return next(derivations(source), None)


def _examples() -> tuple[Sentence, Sentence]:
    trendy = next(adjective for adjective in ADJECTIVES["p"] if adjective.english == "trendy")
    shower = next(idiom for idiom in IDIOMS if "shower" in idiom.clues)
    being = copula(MYSELF, Mood.STATEMENT, adjective_phrase(trendy, MYSELF.gender, MYSELF.plural, None))
    return finish(being), finish(act(MYSELF, Mood.STATEMENT, shower))


EXAMPLES = _examples()
LABELS = (
    *("root", "nsubj", "csubj", "obj", "iobj", "obl", "xcomp", "advcl", "conj"),
    *("det", "poss", "nummod", "amod", "nmod", "advmod", "neg", "aux", "cop", "case", "mark", "cc", "prt", "expl"),
)
