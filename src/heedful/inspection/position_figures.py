"""Positions drawn: what a scheme says of each position, how alike two positions look by their distance, and how going on
turns pairs of dimensions.

A row for each scheme, equal ones together. Of many dimensions some pairs are drawn, so that no row is lost between the pixels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from torch import equal

from heedful.inspection.charts import curve, dials, field
from heedful.inspection.figure import EDGE, Figure, Label, beside, stacked
from heedful.inspection.position_shifts import Turn
from heedful.inspection.positions import Encoding

if TYPE_CHECKING:
    from torch import Tensor

WHAT = {
    "vectors": ("added to the embedding", "position"),
    "angles": ("angle by which queries and keys turn", "position"),
    "biases": ("added to the score", "distance of the key"),
    "nothing": ("nothing is said of positions", "position"),
}
SIMILAR = {
    "vectors": "p · p′",
    "angles": "score of like tokens",
    "biases": "score of like tokens",
    "nothing": "score of like tokens",
}


ROWS = 64  # of a heat-map, at most


class Drawn(NamedTuple):
    encoding: Encoding
    similarity: Tensor  # (distances,)
    scheme: str = ""
    turns: Mapping[str, list[Turn]] = {}  # going on by so many -> of each pair of dimensions

    def equals(self, other: Drawn) -> bool:
        mine, yours = self.encoding, other.encoding
        same = (self.scheme, mine.kind, mine.first, mine.columns) == (other.scheme, yours.kind, yours.first, yours.columns)
        return same and equal(mine.values, yours.values) and equal(self.similarity, other.similarity)


def picture(schemes: Mapping[str, Drawn]) -> Figure:
    """All of it: for each scheme its name, and below it a row."""
    rows = {name: beside(*several) for name, several in figures(schemes).items()}
    named = [Figure(name, row.width, EDGE + 8, [Label(EDGE, EDGE, name, 15)]) for name, row in rows.items()]
    return stacked(*(one for pair in zip(named, rows.values(), strict=True) for one in pair))


def figures(schemes: Mapping[str, Drawn]) -> dict[str, list[Figure]]:
    """By name: the encoding, similarity by distance, and what going on does where that is known."""
    return {": ".join(filter(None, (name, drawn.scheme))): sketches_of(drawn) for name, drawn in together(schemes).items()}


def sketches_of(drawn: Drawn) -> list[Figure]:
    found = [encoding_sketch(drawn.encoding)]
    found.append(curve(drawn.similarity.tolist(), "similarity by distance", "distance", SIMILAR[drawn.encoding.kind]))
    if drawn.turns:
        rows = [f"on by {shift}" for shift in drawn.turns]
        title = "how going on turns pairs of dimensions"
        found.append(dials(list(drawn.turns.values()), title, rows, lambda pair: f"pair {pair}"))
    return found


def together(schemes: Mapping[str, Drawn]) -> dict[str, Drawn]:
    """Those that say the same as one, by all their names."""
    found: list[tuple[list[str], Drawn]] = []
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


def encoding_sketch(said: Encoding) -> Figure:
    what, across = WHAT[said.kind]
    kept = dimensions(said.values.shape[1])
    columns = said.columns if len(kept) == said.values.shape[1] else f"{said.columns}, {len(kept)} of {said.values.shape[1]}"
    values = said.values.float().cpu()[:, kept]
    most, ends = float(values.abs().max()) or 1.0, None
    if said.kind == "angles":  # a full turn has the shade of none
        values, most, ends = values.remainder(2 * math.pi), 2 * math.pi, ("0", "a full turn")
    elif said.kind != "nothing":
        ends = (f"{-most:.3g}", f"{most:.3g}")
    return field(
        values.T,
        what,
        "turn" if said.kind == "angles" else "signed",
        most=most,
        across=(across, said.first),
        down=(columns, ["" if said.kind == "nothing" else str(at) for at in kept]),
        ends=ends,
    )
