"""Positions drawn: what a scheme says of each position, how alike two positions look by their distance, and how going on
turns pairs of dimensions.

A row for each scheme, equal ones together. Of many dimensions some pairs are drawn, so that no row is lost between the pixels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from torch import equal

from heedful.inspection.charts import dials, heatmap_chart, line_chart
from heedful.inspection.figure import EDGE, Figure, Label, side_by_side, stack
from heedful.inspection.position_shifts import PairRotation
from heedful.inspection.positions import Encoding

if TYPE_CHECKING:
    from torch import Tensor

ENCODING_LABELS = {
    "vectors": ("added to the embedding", "position"),
    "angles": ("angle by which queries and keys turn", "position"),
    "biases": ("added to the score", "distance of the key"),
    "nothing": ("nothing is said of positions", "position"),
}
SIMILARITY_LABELS = {
    "vectors": "p · p′",
    "angles": "score of like tokens",
    "biases": "score of like tokens",
    "nothing": "score of like tokens",
}


ROWS = 64  # of a heat-map, at most


class SchemeResult(NamedTuple):
    encoding: Encoding
    similarity: Tensor  # (distances,)
    scheme: str = ""
    rotations: Mapping[str, list[PairRotation]] = {}  # going on by so many -> of each pair of dimensions

    def equals(self, other: SchemeResult) -> bool:
        mine, yours = self.encoding, other.encoding
        same = (self.scheme, mine.kind, mine.first, mine.columns) == (other.scheme, yours.kind, yours.first, yours.columns)
        return same and equal(mine.values, yours.values) and equal(self.similarity, other.similarity)


def picture(schemes: Mapping[str, SchemeResult]) -> Figure:
    """All of it: for each scheme its name, and below it a row."""
    rows = {name: side_by_side(*several) for name, several in figures(schemes).items()}
    named = [Figure(name, row.width, EDGE + 8, [Label(EDGE, EDGE, name, 15)]) for name, row in rows.items()]
    return stack(*(one for pair in zip(named, rows.values(), strict=True) for one in pair))


def figures(schemes: Mapping[str, SchemeResult]) -> dict[str, list[Figure]]:
    """By name: the encoding, similarity by distance, and what going on does where that is known."""
    return {
        ": ".join(filter(None, (name, drawn.scheme))): scheme_figures(drawn) for name, drawn in group_equal(schemes).items()
    }


def scheme_figures(drawn: SchemeResult) -> list[Figure]:
    found = [encoding_figure(drawn.encoding)]
    found.append(
        line_chart(drawn.similarity.tolist(), "similarity by distance", "distance", SIMILARITY_LABELS[drawn.encoding.kind])
    )
    if drawn.rotations:
        rows = [f"on by {shift}" for shift in drawn.rotations]
        title = "how going on turns pairs of dimensions"
        found.append(dials(list(drawn.rotations.values()), title, rows, lambda pair: f"pair {pair}"))
    return found


def group_equal(schemes: Mapping[str, SchemeResult]) -> dict[str, SchemeResult]:
    """Those that say the same as one, by all their names."""
    found: list[tuple[list[str], SchemeResult]] = []
    for name, drawn in schemes.items():
        names = next((names for names, other in found if drawn.equals(other)), None)
        if names is None:
            found.append(([name], drawn))
        else:
            names.append(name)
    return {" and ".join(names): drawn for names, drawn in found}


def dimensions(count: int) -> list[int]:
    """Which are drawn: pairs (of a sine and a cosine) at equal steps."""
    step = math.ceil(count / ROWS)
    return [at for at in range(count) if (at // 2) % step == 0]


def encoding_figure(said: Encoding) -> Figure:
    what, across = ENCODING_LABELS[said.kind]
    kept = dimensions(said.values.shape[1])
    columns = said.columns if len(kept) == said.values.shape[1] else f"{said.columns}, {len(kept)} of {said.values.shape[1]}"
    values = said.values.float().cpu()[:, kept]
    most, ends = float(values.abs().max()) or 1.0, None
    if said.kind == "angles":  # a full turn has the shade of none
        values, most, ends = values.remainder(2 * math.pi), 2 * math.pi, ("0", "a full turn")
    elif said.kind != "nothing":
        ends = (f"{-most:.3g}", f"{most:.3g}")
    return heatmap_chart(
        values.T,
        what,
        "cyclic" if said.kind == "angles" else "signed",
        vmax=most,
        across=(across, said.first),
        down=(columns, ["" if said.kind == "nothing" else str(at) for at in kept]),
        ends=ends,
    )
