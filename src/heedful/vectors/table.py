"""Word vectors by word, and nearest neighbors by cosine similarity.

king - man + woman is the sum of unit vectors with these signs (Mikolov et al., 2013); words of the query are excluded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from heedful.errors import ConfigError, DataError, nearest
from heedful.text.pipelines import BAR

SIGNS = {"+": 1.0, "-": -1.0}


@dataclass(frozen=True)
class Vectors:
    words: Sequence[str]
    values: Tensor  # (words, dim)

    @cached_property
    def index(self) -> dict[str, int]:
        return {word: row for row, word in enumerate(self.words)}

    @cached_property
    def units(self) -> Tensor:
        """(words, dim), every row of length 1."""
        return functional.normalize(self.values, dim=1)

    @property
    def dim(self) -> int:
        return self.values.shape[1]

    def row_of(self, word: str) -> int:
        """Return the row of the word, or of its piece with a leading space."""
        for name in (word, BAR + word):
            if name in self.index:
                return self.index[name]
        close = nearest(word, (name.removeprefix(BAR) for name in self.words))
        raise DataError(
            f"unknown word {word!r}; expected one of the {len(self.words):,} words with a vector",
            hint=f"did you mean {close!r}?" if close else None,
        )


class Term(NamedTuple):
    sign: float
    word: str


def parse_queries(arguments: Sequence[str]) -> list[list[Term]]:
    """Parse king - man + woman queen -> [king - man + woman], [queen]: a sign continues the query before it."""
    queries: list[list[Term]] = []
    sign = ""
    for part in " ".join(arguments).split():
        if part in SIGNS and not sign and queries:
            sign = part
        elif part in SIGNS:
            raise ConfigError(
                f"{part!r} has no word before it in {' '.join(arguments)!r}", hint="write for example: king - man + woman"
            )
        elif sign:
            queries[-1].append(Term(SIGNS[sign], part))
            sign = ""
        else:
            queries.append([Term(1.0, part)])
    if sign or not queries:
        raise ConfigError(
            f"a word is missing at the end of {' '.join(arguments)!r}", hint="write for example: king - man + woman"
        )
    return queries


def format_query(query: Sequence[Term]) -> str:
    return query[0].word + "".join(f" {'+' if term.sign > 0 else '-'} {term.word}" for term in query[1:])


class Neighbor(NamedTuple):
    word: str
    cosine: float


def neighbors(vectors: Vectors, query: Sequence[Term], count: int = 10) -> list[Neighbor]:
    """Return the `count` words nearest to the signed sum, nearest first."""
    rows = torch.tensor([vectors.row_of(term.word) for term in query])
    signs = torch.tensor([term.sign for term in query])
    vector = functional.normalize(signs @ vectors.units[rows], dim=0)  # (dim,)
    cosines = vectors.units @ vector  # (words,)
    cosines[rows] = -torch.inf
    best = cosines.topk(min(count, len(vectors.words) - len(set(rows.tolist()))))
    nearest_rows = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [Neighbor(vectors.words[row], cosine) for row, cosine in nearest_rows]
