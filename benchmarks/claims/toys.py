"""Generated sentence pairs with known translations.

    copy         the target is the source
    dictionary   every word has one translation, and an adjective is swapped with the word on its right
    names        the same, and each sentence has one name outside the vocabulary, which is copied

The same seed gives the same sentences.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

Link = tuple[int, int]  # a word of the source, a word of the target


class Pair(NamedTuple):
    source: list[str]
    target: list[str]
    links: set[Link]


def copy(count: int, lengths: Sequence[int], *, symbols: int = 20, seed: int) -> list[Pair]:
    draw = random.Random(seed)

    def make_pair() -> Pair:
        words = [f"s{draw.randrange(symbols)}" for _ in range(draw.choice(lengths))]
        return Pair(words, words, {(at, at) for at in range(len(words))})

    return [make_pair() for _ in range(count)]


def dictionary(count: int, lengths: Sequence[int], *, words: int = 40, seed: int, names: int = 0) -> list[Pair]:
    """Words a0 … are adjectives, n0 … are not; each has one translation, by a fixed
    shuffle. `names` > 0: one word of each sentence is a name, drawn from that many."""
    draw, shuffled = random.Random(seed), list(range(words))
    random.Random(0).shuffle(shuffled)

    def translate_word(word: str) -> str:
        return word if word.startswith("Name") else f"t{shuffled[int(word[1:])]}"

    def make_pair() -> Pair:
        source = [
            f"{'a' if number < words // 2 else 'n'}{number}" for number in draw.choices(range(words), k=draw.choice(lengths))
        ]
        if names:
            source[draw.randrange(len(source))] = f"Name{draw.randrange(names)}"
        order = swap_adjectives(source)
        target = [translate_word(source[at]) for at in order]
        return Pair(source, target, {(at, position) for position, at in enumerate(order)})

    return [make_pair() for _ in range(count)]


def swap_adjectives(source: Sequence[str]) -> list[int]:
    """The order of the source words in the target: each adjective after the word on its right, from left to right."""
    order, at = list(range(len(source))), 0
    while at + 1 < len(source):
        if source[at].startswith("a"):
            order[at], order[at + 1] = at + 1, at
            at += 1
        at += 1
    return order


def write(pairs: Sequence[Pair], path: Path) -> Path:
    """Write a table of two columns, as `data.train=[{tsv=…}]` reads it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{' '.join(pair.source)}\t{' '.join(pair.target)}\n" for pair in pairs))
    return path
