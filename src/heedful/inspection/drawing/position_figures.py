"""Figures of positional encodings: the encoding by position, similarity by distance, of patches by rows and columns, and the
rotation of pairs of dimensions under a shift.

One row per scheme; equal schemes share a row. Of many dimensions a subset of pairs is drawn, so that every row has pixels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from torch import equal

from heedful.inspection.drawing.charts import dials, heatmap_chart, line_chart
from heedful.inspection.drawing.figure import EDGE, Figure, Label, side_by_side, stack
from heedful.inspection.measures.position_shifts import PairRotation
from heedful.inspection.measures.positions import Encoding

if TYPE_CHECKING:
    from torch import Tensor

ENCODING_LABELS = {
    "vectors": ("added to the embedding", "position"),
    "angles": ("rotation angle of queries and keys", "position"),
    "biases": ("added to the attention score", "distance of the key"),
    "nothing": ("no positional encoding", "position"),
}
SIMILARITY_LABELS = {
    "vectors": "p · p′",
    "angles": "score of equal tokens",
    "biases": "score of equal tokens",
    "nothing": "score of equal tokens",
}


ROWS = 64  # of a heatmap, at most


class SchemeResult(NamedTuple):
    encoding: Encoding
    similarity: Tensor  # (distances,)
    scheme: str = ""
    rotations: Mapping[str, list[PairRotation]] = {}  # shift -> rotation of each pair of dimensions
    patches: Tensor | None = None  # (down, across): similarity of patches r rows and c columns apart

    def equals(self, other: SchemeResult) -> bool:
        own, others = self.encoding, other.encoding
        same = (self.scheme, own.kind, own.first, own.columns) == (other.scheme, others.kind, others.first, others.columns)
        return same and equal(own.values, others.values) and equal(self.similarity, other.similarity)


def position_figure(schemes: Mapping[str, SchemeResult]) -> Figure:
    """Return one figure with a titled row of figures per scheme."""
    rows = {name: side_by_side(*row) for name, row in figures(schemes).items()}
    titles = [Figure(name, row.width, EDGE + 8, [Label(EDGE, EDGE, name, 15)]) for name, row in rows.items()]
    return stack(*(part for pair in zip(titles, rows.values(), strict=True) for part in pair))


def figures(schemes: Mapping[str, SchemeResult]) -> dict[str, list[Figure]]:
    """Return by name: the encoding, similarity by distance, and rotations under shifts where they are defined."""
    return {
        ": ".join(filter(None, (name, result.scheme))): scheme_figures(result) for name, result in group_equal(schemes).items()
    }


def scheme_figures(result: SchemeResult) -> list[Figure]:
    made = [encoding_figure(result.encoding)]
    label = SIMILARITY_LABELS[result.encoding.kind]
    made.append(line_chart(result.similarity.tolist(), "similarity by distance", "distance", label))
    if result.patches is not None:
        made.append(patches_figure(result.patches, result.encoding.kind))
    if result.rotations:
        rows = [f"shift {shift}" for shift in result.rotations]
        title = "rotation of pairs of dimensions by a shift"
        made.append(dials(list(result.rotations.values()), title, rows, lambda pair: f"pair {pair}"))
    return made


def patches_figure(similarity: Tensor, kind: str) -> Figure:
    """similarity (down, across)."""
    values = similarity.float()
    limit = float(values.abs().max()) or 1.0
    measure = "cosine similarity" if kind == "vectors" else "score"
    return heatmap_chart(
        values,
        f"{measure} of patches by rows and columns apart",
        "signed",
        vmax=limit,
        across=("columns apart", 0),
        down=("rows apart", [str(row) for row in range(len(values))]),
        ends=(f"{-limit:.3g}", f"{limit:.3g}"),
    )


def group_equal(schemes: Mapping[str, SchemeResult]) -> dict[str, SchemeResult]:
    """Merge equal schemes under their joined names."""
    groups: list[tuple[list[str], SchemeResult]] = []
    for name, result in schemes.items():
        names = next((names for names, other in groups if result.equals(other)), None)
        if names is None:
            groups.append(([name], result))
        else:
            names.append(name)
    return {" and ".join(names): result for names, result in groups}


def dimensions(count: int) -> list[int]:
    """Return the dimensions to draw: pairs (of a sine and a cosine) at equal steps."""
    step = math.ceil(count / ROWS)
    return [at for at in range(count) if (at // 2) % step == 0]


def encoding_figure(encoding: Encoding) -> Figure:
    title, across = ENCODING_LABELS[encoding.kind]
    kept = dimensions(encoding.values.shape[1])
    columns = (
        encoding.columns
        if len(kept) == encoding.values.shape[1]
        else f"{encoding.columns}, {len(kept)} of {encoding.values.shape[1]}"
    )
    values = encoding.values.float().cpu()[:, kept]
    vmax, ends = float(values.abs().max()) or 1.0, None
    if encoding.kind == "angles":  # a full turn has the color of 0
        values, vmax, ends = values.remainder(2 * math.pi), 2 * math.pi, ("0", "a full turn")
    elif encoding.kind != "nothing":
        ends = (f"{-vmax:.3g}", f"{vmax:.3g}")
    return heatmap_chart(
        values.T,
        title,
        "cyclic" if encoding.kind == "angles" else "signed",
        vmax=vmax,
        across=(across, encoding.first),
        down=(columns, ["" if encoding.kind == "nothing" else str(at) for at in kept]),
        ends=ends,
    )
