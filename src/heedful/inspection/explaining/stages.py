"""An explanation: stages in order, each with a formula, matrices, a text, and common mistakes with their results.

    Stage("Scores", "S = Q K^T", [Matrix("S", queries, keys, cells)], "The dot product of …")

Stages are independent of the output format; `text()`, `html()` and `to_dict()` render the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from heedful.inspection.explaining.tree import Tree
from heedful.inspection.page.blocks import Block, Lines
from heedful.inspection.result import Result

Cell = float | int | bool | str | None  # None: an empty cell
TOLERANCE = 1e-6  # of recomputed numbers, relative to the largest of the model's numbers if that exceeds 1
SUM = "sum"  # the label of a column that is not shaded


class Matrix(NamedTuple):
    """Numbers (or words) with a label for every row and column."""

    name: str
    rows: Sequence[str]
    columns: Sequence[str]
    cells: Sequence[Sequence[Cell]]
    shaded: bool = False  # weights or probabilities: the larger, the darker
    form: str = ".4f"  # format of numbers


class Mistake(NamedTuple):
    """A common mistake, its result, and why it is wrong."""

    what: str
    matrices: Sequence[Matrix]
    why: str


class Check(NamedTuple):
    """The difference between a recomputed stage and the model's own values."""

    what: str
    difference: float  # the largest absolute difference
    size: float  # the largest absolute value of the model, or of the logits of a softmax
    within: float = TOLERANCE
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


@dataclass(frozen=True)
class Explanation(Result):
    """A worked example, or a computation of a trained model, stage by stage.

    >>> [stage.title for stage in heedful.inspection.explain("masked").stages][-1]
    'Weighted sum'
    """

    heading: str
    opening: str
    stages: Sequence[Stage]
    tensors: Mapping[str, Any] | None = None  # of a head: in full, where the stages show the first columns (head_tensors.py)

    @property
    def title(self) -> str:
        return self.heading

    def to_dict(self) -> dict[str, Any]:
        result = {"title": self.heading, "opening": self.opening, "stages": to_plain(self.stages)}
        return result if self.tensors is None else result | {"tensors": dict(self.tensors)}

    def text(self) -> str:
        from heedful.inspection.explaining.text import render

        return render(self)

    def html(self) -> str:
        from heedful.inspection.explaining.html import render

        return render(self)

    def blocks(self) -> list[Block]:
        return [Lines(self.text())]


def matrix(name: str, rows: Sequence[str], columns: Sequence[str], values: Tensor, *, shaded: bool = False) -> Matrix:
    """Label a tensor. values (rows, columns)."""
    assert values.shape == (len(rows), len(columns)), f"{name}: {tuple(values.shape)} with {len(rows)} x {len(columns)} labels"
    return Matrix(name, rows, columns, values.tolist(), shaded)


def with_sum(values: Matrix) -> Matrix:
    """Append a column with the sum of each row."""
    cells = [[*row, sum(cell for cell in row if isinstance(cell, float))] for row in values.cells]
    return values._replace(columns=[*values.columns, SUM], cells=cells)


def check(what: str, ours: Tensor, models: Tensor) -> Check:
    """Compare recomputed values with the model's."""
    return Check(what, float((ours.double() - models.double()).abs().max()), float(models.abs().max()))


def check_softmax(what: str, ours: Tensor, models: Tensor, logits: Tensor) -> Check:
    """As `check`, for the output of a softmax, whose error is proportional to the size of its logits."""
    size = float(logits[logits.isfinite()].abs().max())
    return check(what, ours, models)._replace(size=size, size_of="logit")


def to_plain(value: Any) -> Any:
    """Convert to nested dicts and lists; non-finite numbers, which JSON lacks, become strings."""
    if isinstance(value, Check):
        return value._asdict() | {"holds": value.holds}
    if hasattr(value, "_asdict"):
        return {name: to_plain(item) for name, item in value._asdict().items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
