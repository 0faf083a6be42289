"""Positional encodings: their values, similarity by distance, and extrapolation past the training length.

    encoding      vectors (position x dimension), angles (position x pair) or biases (distance x head)
    scores        attention scores of tokens that differ only in position:
                      p_i . p_j   where vectors are added,   (R_i 1) . (R_j 1) / head_dim + bias_ij   elsewhere
    by_distance   the mean of scores_ij over all pairs with i - j = r; sinusoidal: sum_k cos(w_k r)   (Vaswani et al., 2017)

Positions that are the patches of an image have a row and a column. Their distance is sqrt(rows^2 + columns^2), rounded; and
by_row_and_column is the mean of scores_ij over all pairs of patches that are r rows and c columns apart.

All are computed with the scheme's `embed`, `rotate` and `bias`, so custom schemes are supported.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from heedful.errors import HeedfulError
from heedful.nn.positions import PatchGrid, Position

Kind = Literal["vectors", "angles", "biases", "nothing"]


class Encoding(NamedTuple):
    """A positional encoding: vectors (position, dimension), angles (position, pair), biases (distance, head)."""

    kind: Kind
    values: Tensor
    first: int  # the position, or distance of the key from the query, of the first row
    columns: str  # name of the column axis


class Shape(NamedTuple):
    """Regularity of scores (query, key); both errors are 0 if scores depend on |key - query| only."""

    symmetry_error: float  # |S - S^T| / |S|
    toeplitz_error: float  # |S - its mean along each diagonal| / |S|
    distance_correlation: float | None  # of S with |i - j|; None if S is constant


class Extrapolation(NamedTuple):
    """Behavior of a scheme at positions past the training length."""

    refused: str | None  # error message, if it does not support them
    unseen: float | None  # share of its values there outside the range of the training positions


def schemes(model: nn.Module) -> dict[str, Position]:
    """Return the position schemes of a model by name; of wrappers, the inner scheme."""
    modules = {name: module for name, module in model.named_modules() if isinstance(module, Position)}
    return {name: module for name, module in modules.items() if not any(other.startswith(f"{name}.") for other in modules)}


def kind_of(position: Position) -> Kind:
    """Return the kind of encoding by the method that the scheme overrides."""
    methods: dict[Kind, str] = {"vectors": "embed", "angles": "rotate", "biases": "bias"}
    own = type(position)
    return next((kind for kind, method in methods.items() if getattr(own, method) is not getattr(Position, method)), "nothing")


@torch.no_grad()
def encoding(position: Position, count: int) -> Encoding:
    """Return the encoding of the first `count` positions; biases: of all distances between them, in a decoder of past keys."""
    kind = kind_of(position)
    if kind == "vectors":
        return Encoding(kind, vectors(position, torch.arange(count)), 0, "dimension")
    if kind == "angles":
        return Encoding(kind, angles(position, count), 0, "pair of dimensions")
    if kind == "biases":
        values = biases(position, count)
        values = values if position.size.reads_ahead else values[:count]
        return Encoding(kind, values, 1 - count, "head" if values.shape[1] == position.size.heads else "dimension of the query")
    return Encoding(kind, torch.zeros(count, 1), 0, "")


def vectors(position: Position, places: Tensor) -> Tensor:
    """Return the vectors added to embeddings: places (count,) -> (count, dim)."""
    return position.embed(zeros_for(position, 1, len(places), position.size.dim), on_device(position, places)[None])[0]


def angles(position: Position, count: int) -> Tensor:
    """Return the rotation angle of each pair of a query: (count, head_dim / 2), unwrapped."""
    unit = zeros_for(position, 1, 1, count, position.size.head_dim)
    unit[..., 0::2] = 1.0  # the first of each pair
    rotated = position.rotate(unit, on_device(position, torch.arange(count))[None])[0, 0]  # (count, head_dim)
    steps = torch.atan2(rotated[..., 1::2], rotated[..., 0::2]).diff(dim=0)  # (count - 1, head_dim / 2)
    steps = torch.remainder(steps + math.pi, 2 * math.pi) - math.pi  # at most half a turn per position
    return torch.cat((steps.new_zeros(1, steps.shape[1]), steps.cumsum(0)))


def biases(position: Position, count: int) -> Tensor:
    """Return the bias of the score at key distance r from 1 - count to count - 1: (distances, heads).

    If it depends on the query: for each unit query, (distances, head_dim); the bias is linear in the query."""
    query = torch.eye(position.size.head_dim).to(zeros_for(position))[:, None, None]  # (rows = head_dim, 1, 1, head_dim)
    query = query.expand(-1, position.size.heads, -1, -1)
    query_position, keys = (
        on_device(position, torch.tensor([[count - 1]])),
        on_device(position, torch.arange(2 * count - 1)[None]),
    )
    bias = position.bias(query, query_position, keys)
    assert bias is not None, "a scheme of biases returns one"
    each = bias[:, :, 0]  # (head_dim or 1, heads, distances)
    return each[0].T if len(each) == 1 else each[:, 0].T


@torch.no_grad()
def scores(position: Position, count: int) -> Tensor:
    """Return the scores (query, key) of equal tokens at different positions, averaged over heads."""
    places = on_device(position, torch.arange(count))[None]
    if kind_of(position) == "vectors":
        table = vectors(position, places[0]).double()
        return table @ table.T
    ones = torch.ones_like(zeros_for(position, 1, position.size.heads, count, position.size.head_dim))
    rotated = position.rotate(ones, places)  # (1, heads, count, head_dim)
    bias = position.bias(rotated, places, places)
    dots = (rotated @ rotated.transpose(-2, -1) / position.size.head_dim)[0].mean(0).double()
    dots = dots if bias is None else dots + bias[0].mean(0).double()
    return dots if position.size.reads_ahead else dots.tril() + dots.tril(-1).T  # masked keys: mirrored


def cosines(dots: Tensor) -> Tensor:
    """Gram matrix (count, count) -> cosine similarities."""
    norms = dots.diagonal().clamp(min=1e-30).sqrt()
    return dots / norms[:, None] / norms


def by_distance(scores: Tensor) -> Tensor:
    """(count, count) -> (count,): the mean over all pairs with the key r positions before the query."""
    return torch.stack([scores.diagonal(-r).mean() for r in range(len(scores))])


def of_patches(scores: Tensor, grid: PatchGrid) -> Tensor:
    """(positions, positions) -> (patches, patches): without positions before the patches."""
    return scores[grid.before :, grid.before :]


def apart(grid: PatchGrid, device: torch.device) -> tuple[Tensor, Tensor]:
    """How many rows and columns each patch is from each other: (patches, patches) both, negative before it."""
    places = torch.arange(grid.down * grid.across, device=device)
    rows, columns = places // grid.across, places % grid.across
    return rows[None] - rows[:, None], columns[None] - columns[:, None]


def group_means(scores: Tensor, groups: Tensor) -> Tensor:
    """The mean of the scores of each group, from 0; NaN for a group without scores."""
    total = scores.new_zeros(int(groups.max()) + 1).scatter_add(0, groups.flatten(), scores.flatten())
    return total / torch.zeros_like(total).scatter_add(0, groups.flatten(), torch.ones_like(scores).flatten())


def by_row_and_column(scores: Tensor, grid: PatchGrid) -> Tensor:
    """(patches, patches) -> (down, across): the mean over all pairs of patches r rows and c columns apart."""
    rows, columns = apart(grid, scores.device)
    return group_means(scores, rows.abs() * grid.across + columns.abs()).view(grid.down, grid.across)


def by_grid_distance(scores: Tensor, grid: PatchGrid) -> Tensor:
    """(patches, patches) -> (distances,): the mean over all pairs of patches at distance r, rounded."""
    rows, columns = apart(grid, scores.device)
    return group_means(scores, torch.hypot(rows.double(), columns.double()).round().long())


def shape_of(scores: Tensor, grid: PatchGrid | None = None) -> Shape:
    """Measure how far scores are from a function of the distance; grid: of the patches that the scores are of."""
    count, norm = len(scores), float(scores.norm())
    if grid is None:
        places = torch.arange(count, device=scores.device)
        offset = places[None] - places[:, None] + count - 1  # (query, key), from 0
        distance = (places[None] - places[:, None]).abs().to(scores)
    else:
        rows, columns = apart(grid, scores.device)
        offset = (rows + grid.down - 1) * (2 * grid.across - 1) + columns + grid.across - 1
        distance = torch.hypot(rows.to(scores), columns.to(scores))
    smooth = group_means(scores, offset)[offset]
    constant = count < 2 or float(scores.std()) <= 1e-6 * max(norm / count, 1e-30)
    both = torch.stack((scores.flatten(), distance.flatten()))
    return Shape(
        float((scores - scores.T).norm()) / max(norm, 1e-30),
        float((scores - smooth).norm()) / max(norm, 1e-30),
        None if constant else float(both.corrcoef()[0, 1]),
    )


def extrapolation(position: Position, trained: int) -> Extrapolation:
    """Compare positions `trained` … 2 `trained` - 1 with those before: are they supported, and are their values in range?"""
    try:
        position.check_length(2 * trained)
    except HeedfulError as error:
        return Extrapolation(str(error.args[0]), None)
    extended = encoding(position, 2 * trained)
    if extended.kind == "nothing":
        return Extrapolation(None, 0.0)
    values = extended.values.sin() if extended.kind == "angles" else extended.values  # periodic
    if extended.kind == "biases":
        past = values[: 2 * trained]  # keys before the query, the farthest first
        old, new = past[trained:], past[:trained]
    else:
        old, new = values[:trained], values[trained:]
    low, high = old.amin(0) - 1e-6, old.amax(0) + 1e-6
    return Extrapolation(None, float(((new < low) | (new > high)).double().mean()))


def zeros_for(position: Position, *shape: int) -> Tensor:
    """Return zeros with the device and dtype of the scheme."""
    tensor = next(position.parameters(), next(position.buffers(), torch.zeros(())))
    return tensor.new_zeros(shape)


def on_device(position: Position, places: Tensor) -> Tensor:
    return places.to(zeros_for(position).device)
