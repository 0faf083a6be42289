"""Numbered sets: every combination of choices has a number, so a corpus without repetition needs no memory.

space.at(i)            the i-th item, i written in mixed radix, one digit for each list of choices
shuffled(i, size, key) a permutation of 0 .. size - 1: for i = 0, 1, 2, ... every number once, in scattered order
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import product
from typing import Any, Generic, NamedTuple, TypeVar

from heedful.data.grammar.clauses import Clause

Item = TypeVar("Item")


class Space(Generic[Item]):
    """All results of `make` over all combinations of the choices."""

    def __init__(self, make: Callable[..., Item], *choices: Sequence[Any]) -> None:
        self.make = make
        self.choices = choices
        self.digits = [(choice, len(choice)) for choice in choices]
        self.size = math.prod(length for _, length in self.digits)

    def at(self, index: int) -> Item:
        chosen = []
        for choice, length in self.digits:
            index, digit = divmod(index, length)
            chosen.append(choice[digit])
        return self.make(*chosen)

    def among(self, words: Collection[str]) -> Iterator[Item]:
        """The items that may occur in a sentence of these words, judging by their clues."""
        fitting = [[item for item in choice if _may_occur(item, words)] for choice in self.choices]
        return (self.make(*chosen) for chosen in product(*fitting))


def one_of(items: Sequence[Item]) -> Space[Item]:
    return Space(_itself, items)


def _itself(item: Item) -> Item:
    return item


def _may_occur(item: Any, words: Collection[str]) -> bool:
    clues = getattr(item, "clues", ())
    return not clues or any(clue in words for clue in clues)


class Family(NamedTuple):
    """Sentences of one pattern: `build` makes a clause of one item of each space. Weight: how often it is drawn."""

    weight: float
    build: Callable[..., Clause]
    spaces: tuple[Space[Any], ...]

    @property
    def size(self) -> int:
        return math.prod(space.size for space in self.spaces)

    def at(self, index: int) -> Clause:
        items = []
        for space in self.spaces:
            index, digit = divmod(index, space.size)
            items.append(space.at(digit))
        return self.build(*items)


def shuffled(index: int, size: int, key: int) -> int:
    """A permutation of range(size), one for each key.

    Adding, multiplying by an odd number and folding the upper half onto the lower are one-to-one on numbers of a given
    bit length; a result that is too large is sent round again until it fits (Black and Rogaway's cycle walking).
    """
    bits = max((size - 1).bit_length(), 2)
    mask, half = (1 << bits) - 1, bits // 2 + 1
    while True:
        for _ in range(3):
            index = (index + key & mask) * 0x9E3779B97F4A7C15 & mask
            index ^= index >> half
        if index < size:
            return index
