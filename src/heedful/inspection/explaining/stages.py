"""An explanation: stages in order, each with its formula, its matrices, why it is done, and what mistakes would give.

    Stage("Scores", "S = Q K^T", [Matrix("S", words, others, numbers)], "Each query asks every key …")

Whoever computes makes stages and knows nothing of how they are shown; `text`, `html` and `as_json` show the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from heedful.inspection.explaining.tree import Tree

Cell = float | int | bool | str | None  # None: nothing stands here
WITHIN = 1e-6  # how near a recomputed number must be to the model's, measured on the larger of 1 and the largest number

SUM = "sum"  # a column that is no share


class Matrix(NamedTuple):
    """Numbers (or words) with a label for every row and column."""

    name: str
    rows: Sequence[str]
    columns: Sequence[str]
    cells: Sequence[Sequence[Cell]]
    shaded: bool = False  # shares of a whole: the larger, the darker
    form: str = ".4f"  # of numbers


class Mistake(NamedTuple):
    """What people do instead, what it gives, and why it is wrong."""

    what: str
    matrices: Sequence[Matrix]
    why: str


class Check(NamedTuple):
    """How far a stage, computed by itself, is from what the model computed."""

    what: str
    difference: float  # the largest
    size: float  # the largest of the model's numbers, or of those that a softmax made them of
    within: float = WITHIN
    size_of: str = "number"

    @property
    def holds(self) -> bool:
        return self.difference <= self.within * max(1.0, self.size)


class Stage(NamedTuple):
    title: str
    formula: str  # in the notation of `formulas`
    matrices: Sequence[Matrix]
    why: str
    mistakes: Sequence[Mistake] = ()
    checks: Sequence[Check] = ()
    tree: Tree | None = None


class Explanation(NamedTuple):
    title: str
    opening: str
    stages: Sequence[Stage]


def matrix(name: str, rows: Sequence[str], columns: Sequence[str], values: Tensor, *, shaded: bool = False) -> Matrix:
    """values (rows, columns)."""
    assert values.shape == (len(rows), len(columns)), f"{name}: {tuple(values.shape)} with {len(rows)} x {len(columns)} labels"
    return Matrix(name, rows, columns, values.tolist(), shaded)


def with_sum(one: Matrix) -> Matrix:
    """With a last column that adds up each row."""
    cells = [[*row, sum(cell for cell in row if isinstance(cell, float))] for row in one.cells]
    return one._replace(columns=[*one.columns, SUM], cells=cells)


def check(what: str, ours: Tensor, models: Tensor) -> Check:
    """Compare what was recomputed with what the model had."""
    return Check(what, float((ours.double() - models.double()).abs().max()), float(models.abs().max()))


def check_softmax(what: str, ours: Tensor, models: Tensor, logits: Tensor) -> Check:
    """As `check`, of what a softmax made of logits: small as it may be, it is no more exact than they are."""
    size = float(logits[logits.isfinite()].abs().max())
    return check(what, ours, models)._replace(size=size, size_of="logit")


def as_json(explanation: Explanation) -> dict[str, Any]:
    found: dict[str, Any] = plain(explanation)
    return found


def plain(value: Any) -> Any:
    """Nested dicts and lists; what JSON has no number for becomes a word."""
    if isinstance(value, Check):
        return value._asdict() | {"holds": value.holds}
    if hasattr(value, "_asdict"):
        return {name: plain(item) for name, item in value._asdict().items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
