"""Positions looked at: what a scheme tells a model of where a token stands, and how it goes on past the lengths of training.

    encoding      what a scheme adds: vectors (position x dimension), angles (position x pair) or biases (distance x head)
    scores        what attention sees of tokens that differ in nothing but their place:
                      p_i . p_j   where vectors are added,   (R_i 1) . (R_j 1) / head_dim + bias_ij   elsewhere
    by_distance   the mean of scores_ij over all pairs with i - j = r; sinusoidal: sum_k cos(w_k r)   (Vaswani et al., 2017)

Each is asked of a scheme through its own `embed`, `rotate` and `bias`, so a scheme of one's own is looked at like any other.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from heedful.errors import HeedfulError
from heedful.nn.positions import Position

Kind = Literal["vectors", "angles", "biases", "nothing"]


class Encoding(NamedTuple):
    """What a scheme says: vectors (position, dimension), angles (position, pair), biases (distance, head)."""

    kind: Kind
    values: Tensor
    first: int  # the position, or distance of the key from the query, of the first row
    columns: str  # what they are


class Shape(NamedTuple):
    """How regular scores are: (query, key), each figure 0 where they depend on |key - query| alone."""

    symmetry_error: float  # |S - S^T| / |S|
    toeplitz_error: float  # |S - its mean along each diagonal| / |S|
    distance_correlation: float | None  # of S with |i - j|; None where S never changes


class Extrapolation(NamedTuple):
    """What a scheme does with positions past those of training."""

    refused: str | None  # the sentence with which it refuses them
    unseen: float | None  # share of its numbers there that lie outside the range which training showed


def schemes(model: nn.Module) -> dict[str, Position]:
    """The position schemes of a model by name, those inside others instead of their wrappers."""
    found = {name: module for name, module in model.named_modules() if isinstance(module, Position)}
    return {name: one for name, one in found.items() if not any(other.startswith(f"{name}.") for other in found)}


def kind_of(position: Position) -> Kind:
    """By the method that it overrides."""
    methods: dict[Kind, str] = {"vectors": "embed", "angles": "rotate", "biases": "bias"}
    own = type(position)
    return next((kind for kind, method in methods.items() if getattr(own, method) is not getattr(Position, method)), "nothing")


@torch.no_grad()
def encoding(position: Position, count: int) -> Encoding:
    """Of the first `count` positions; of biases, all distances between them that are looked over: a decoder's end at 0."""
    kind = kind_of(position)
    if kind == "vectors":
        return Encoding(kind, vectors(position, torch.arange(count)), 0, "dimension")
    if kind == "angles":
        return Encoding(kind, angles(position, count), 0, "pair of dimensions")
    if kind == "biases":
        found = biases(position, count)
        found = found if position.size.reads_ahead else found[:count]
        return Encoding(kind, found, 1 - count, "head" if found.shape[1] == position.size.heads else "dimension of the query")
    return Encoding(kind, torch.zeros(count, 1), 0, "")


def vectors(position: Position, places: Tensor) -> Tensor:
    """What is added to an embedding: places (count,) -> (count, dim)."""
    return position.embed(
        zeros_like_scheme(position, 1, len(places), position.size.dim), to_scheme_device(position, places)[None]
    )[0]


def angles(position: Position, count: int) -> Tensor:
    """By how much each pair of a query is turned: (count, head_dim / 2), counted on past a full turn."""
    along = zeros_like_scheme(position, 1, 1, count, position.size.head_dim)
    along[..., 0::2] = 1.0  # the first of each pair
    turned = position.rotate(along, to_scheme_device(position, torch.arange(count))[None])[0, 0]  # (count, head_dim)
    steps = torch.atan2(turned[..., 1::2], turned[..., 0::2]).diff(dim=0)  # (count - 1, head_dim / 2)
    steps = torch.remainder(steps + math.pi, 2 * math.pi) - math.pi  # no pair turns by more than half a circle at a time
    return torch.cat((steps.new_zeros(1, steps.shape[1]), steps.cumsum(0)))


def biases(position: Position, count: int) -> Tensor:
    """What is added to the score of a key r away, r from 1 - count to count - 1: (distances, heads).

    Where it depends on the query: of each unit query, (distances, head_dim); any other query's is a sum of these."""
    query = torch.eye(position.size.head_dim).to(zeros_like_scheme(position))[
        :, None, None
    ]  # (rows = head_dim, 1, 1, head_dim)
    query = query.expand(-1, position.size.heads, -1, -1)
    here, keys = (
        to_scheme_device(position, torch.tensor([[count - 1]])),
        to_scheme_device(position, torch.arange(2 * count - 1)[None]),
    )
    found = position.bias(query, here, keys)
    assert found is not None, "a scheme of biases has one"
    each = found[:, :, 0]  # (head_dim or 1, heads, distances)
    return each[0].T if len(each) == 1 else each[:, 0].T


@torch.no_grad()
def scores(position: Position, count: int) -> Tensor:
    """(query, key): what attention sees of tokens alike but for their places, the mean over heads."""
    places = to_scheme_device(position, torch.arange(count))[None]
    if kind_of(position) == "vectors":
        table = vectors(position, places[0]).double()
        return table @ table.T
    ones = torch.ones_like(zeros_like_scheme(position, 1, position.size.heads, count, position.size.head_dim))
    turned = position.rotate(ones, places)  # (1, heads, count, head_dim)
    bias = position.bias(turned, places, places)
    seen = (turned @ turned.transpose(-2, -1) / position.size.head_dim)[0].mean(0).double()
    seen = seen if bias is None else seen + bias[0].mean(0).double()
    return seen if position.size.reads_ahead else seen.tril() + seen.tril(-1).T  # what is never looked at: as its mirror image


def cosines(dots: Tensor) -> Tensor:
    """Dot products of vectors with each other -> the cosines of their angles."""
    lengths = dots.diagonal().clamp(min=1e-30).sqrt()
    return dots / lengths[:, None] / lengths


def by_distance(seen: Tensor) -> Tensor:
    """(count, count) -> (count,): the mean of all pairs whose key stands r before the query."""
    return torch.stack([seen.diagonal(-r).mean() for r in range(len(seen))])


def shape_of(seen: Tensor) -> Shape:
    """How far scores are from being a function of the distance."""
    count, norm = len(seen), float(seen.norm())
    places = torch.arange(count, device=seen.device)
    offset = places[None] - places[:, None] + count - 1  # (query, key), from 0
    total = seen.new_zeros(2 * count - 1).scatter_add(0, offset.flatten(), seen.flatten())
    each = torch.zeros_like(total).scatter_add(0, offset.flatten(), torch.ones_like(seen).flatten())
    smooth = (total / each)[offset]
    far = (places[None] - places[:, None]).abs().to(seen)
    flat = float(seen.std()) <= 1e-6 * max(norm / count, 1e-30)
    both = torch.stack((seen.flatten(), far.flatten()))
    return Shape(
        float((seen - seen.T).norm()) / max(norm, 1e-30),
        float((seen - smooth).norm()) / max(norm, 1e-30),
        None if flat else float(both.corrcoef()[0, 1]),
    )


def extrapolation(position: Position, trained: int) -> Extrapolation:
    """Of `trained` positions, as many again: are they taken, and how much of what they say was never said in training?"""
    try:
        position.check_length(2 * trained)
    except HeedfulError as refusal:
        return Extrapolation(str(refusal.args[0]), None)
    said = encoding(position, 2 * trained)
    if said.kind == "nothing":
        return Extrapolation(None, 0.0)
    values = said.values.sin() if said.kind == "angles" else said.values  # a full turn is no turn
    if said.kind == "biases":
        past = values[: 2 * trained]  # keys before the query, the farthest first
        old, new = past[trained:], past[:trained]
    else:
        old, new = values[:trained], values[trained:]
    low, high = old.amin(0) - 1e-6, old.amax(0) + 1e-6
    return Extrapolation(None, float(((new < low) | (new > high)).double().mean()))


def zeros_like_scheme(position: Position, *shape: int) -> Tensor:
    """Zeros where the scheme's numbers are."""
    own = next(position.parameters(), next(position.buffers(), torch.zeros(())))
    return own.new_zeros(shape)


def to_scheme_device(position: Position, places: Tensor) -> Tensor:
    return places.to(zeros_like_scheme(position).device)
