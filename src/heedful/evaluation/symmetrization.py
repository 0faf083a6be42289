"""Two alignments of the same words, made from the source's side and from the target's, become one.

intersection           links that both have: few and right
union                  links that either has: many
grow-diag              the intersection, grown by links of the union that touch it (also at a corner) and align a word
                       that had none, until none is left
grow-diag-final-and    then also those of the union whose words are both still without a link (Koehn et al., 2003)
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
