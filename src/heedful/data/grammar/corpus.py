"""The corpus: a long, reproducible stream of distinct sentences, split by the hash of their source.

    stream   draw a family by weight, take the next number of its shuffled sequence, build that sentence
    split    SHA-256 of the source, as a number, modulo 20: 0 is test, 1 is valid, the rest is train

Each number is drawn once, and no sentence has two numbers, so no memory is needed to avoid repetition.
"""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate, product
from typing import NamedTuple

from heedful.data.generated_split import Split, split_of
from heedful.data.grammar.actions import IDIOMS, act
from heedful.data.grammar.clauses import Clause, Mood, adjective_phrase, copula
from heedful.data.grammar.lexicon import ADJECTIVES
from heedful.data.grammar.participants import MYSELF
from heedful.data.grammar.phrases import compose, source_words
from heedful.data.grammar.rules import families
from heedful.data.grammar.spaces import Family, Space, shuffled
from heedful.errors import ConfigError, DataError

SPLITS: tuple[Split, ...] = ("train", "valid", "test")


class Sentence(NamedTuple):
    """A pair with its gold alignment and both dependency trees; indices count words separated by spaces."""

    source: str
    target: str
    alignment: frozenset[tuple[int, int]]  # (source word, target word)
    source_heads: tuple[int, ...]  # -1 for the root
    source_labels: tuple[str, ...]
    target_heads: tuple[int, ...]
    target_labels: tuple[str, ...]


def _capitalize(words: Sequence[str], asks: bool) -> str:
    text = " ".join(words)
    return text[0].upper() + text[1:] + ("?" if asks else "")


def source_text(clause: Clause) -> str:
    return _capitalize(source_words(clause.frame, clause.parts), clause.asks)


def finish(clause: Clause) -> Sentence:
    source, target, links = compose(clause.frame, clause.parts)
    return Sentence(
        _capitalize(source.words, clause.asks),
        _capitalize(target.words, clause.asks),
        frozenset(links),
        source.heads,
        source.labels,
        target.heads,
        target.labels,
    )


def stream(members: Sequence[Family], seed: int) -> Iterator[Clause]:
    """Yield every clause of the families once, in an order that depends only on the seed."""
    draw = random.Random(seed)
    sizes = [family.size for family in members]
    keys = [draw.getrandbits(64) for _ in members]
    drawn = [0] * len(members)
    alive = list(range(len(members)))
    while alive:
        totals = list(accumulate(members[i].weight for i in alive))
        exhausted = False
        while not exhausted:
            place = bisect(totals, draw.random() * totals[-1])
            chosen = alive[min(place, len(alive) - 1)]
            yield members[chosen].at(shuffled(drawn[chosen], sizes[chosen], keys[chosen]))
            drawn[chosen] += 1
            exhausted = drawn[chosen] == sizes[chosen]
        alive.remove(chosen)


def generate(split: Split, count: int, seed: int = 0) -> Iterator[Sentence]:
    """Yield the first `count` sentences of a split; sources are distinct, and a larger count only appends."""
    if split not in SPLITS:
        raise ConfigError(f"unknown split {split!r}; expected one of: {', '.join(SPLITS)}")
    given = 0
    clauses = stream(families(), seed)
    while given < count:
        clause = next(clauses, None)
        if clause is None:
            raise DataError(f"{count} sentences of the built-in corpus requested, but {split!r} has only {given}")
        if split_of(source_text(clause)) == split:
            given += 1
            yield finish(clause)


@cache
def cumulative_weights() -> list[float]:
    return list(accumulate(family.weight for family in families()))


def draw_sentence(draw: random.Random) -> Sentence:
    """A sentence of a family drawn by weight; sentences may repeat."""
    (family,) = draw.choices(families(), cum_weights=cumulative_weights())
    return finish(family.at(draw.randrange(family.size)))


def count_pairs() -> int:
    """Return the number of distinct pairs that the grammar generates."""
    return sum(family.size for family in families())


def derivations(source: str) -> Iterator[Sentence]:
    """Yield every derivation of this source; there is at most one."""
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
    """Return the sentence with this source, or None if the grammar does not generate it."""
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
