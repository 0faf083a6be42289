"""`data.split`: the fractions of a file for train, valid and test. `hash_split.py` decides which text belongs to which part."""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

from pydantic import Field

PARTS = ("train", "valid", "test")
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Fractions = tuple[Fraction, Fraction, Fraction]


class SplitPart(NamedTuple):
    """A part of a file that is split."""

    name: str  # train, valid or test
    fractions: Fractions

    def empty(self, file: str, unit: str) -> str:
        """The error of a part without content."""
        return f"{file} has no {unit} for {self.name} with data.split = {list(self.fractions)}; expected at least one"


def makes_part(fractions: Fractions | None, name: str) -> bool:
    """Whether these fractions make this part, and others."""
    return fractions is not None and 0.0 < fractions[PARTS.index(name)] < 1.0


def fraction_problems(fractions: Fractions) -> list[str]:
    """Why these are no fractions of a split, one sentence each."""
    problems = []
    if not math.isclose(sum(fractions), 1.0, abs_tol=1e-6):
        problems.append(f"given {list(fractions)}, whose sum is {sum(fractions):g}; expected three fractions with the sum 1")
    if not fractions[0]:
        problems.append(f"given {list(fractions)}, which leaves nothing to train on; expected a first fraction > 0")
    return problems
