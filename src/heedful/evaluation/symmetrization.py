"""Symmetrization: combine the alignments of both translation directions into one.

intersection           links in both: high precision
union                  links in either: high recall
grow-diag              the intersection, extended by adjacent links of the union (also diagonally) that align an
                       unaligned word, until none is left
grow-diag-final-and    then also links of the union between two unaligned words (Koehn et al., 2003)
"""

from __future__ import annotations

from collections.abc import Callable, Set
from itertools import product

from heedful.evaluation.word_alignment import Link

NEIGHBORS = [(i, j) for i, j in product((-1, 0, 1), repeat=2) if (i, j) != (0, 0)]


def grow(first: Set[Link], second: Set[Link]) -> set[Link]:
    union, grown = first | second, set(first & second)
    grows = True
    while grows:
        grows = False
        for link in sorted(union):
            for step in NEIGHBORS if link in grown else ():
                new = link[0] + step[0], link[1] + step[1]
                if new in union and not has_both(grown, new):
                    grown.add(new)
                    grows = True
    return grown


def grow_final(first: Set[Link], second: Set[Link]) -> set[Link]:
    grown = grow(first, second)
    for link in (*sorted(first), *sorted(second)):
        if has_neither(grown, link):
            grown.add(link)
    return grown


def has_both(links: Set[Link], link: Link) -> bool:
    return any(link[0] == source for source, _ in links) and any(link[1] == target for _, target in links)


def has_neither(links: Set[Link], link: Link) -> bool:
    return not any(link[0] == source or link[1] == target for source, target in links)


SYMMETRIZATIONS: dict[str, Callable[[Set[Link], Set[Link]], set[Link]]] = {
    "grow-diag-final-and": grow_final,
    "grow-diag": grow,
    "intersection": lambda first, second: set(first & second),
    "union": lambda first, second: set(first | second),
}
