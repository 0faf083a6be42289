"""Attention structure: which positions attend to which, or what is added to their scores, chosen by the user.

    scores_ij = q_i . k_j / sqrt(head_dim) + bias_ij,      softmax over the j with mask_ij

    window      |i - j| <= radius
    causal      j <= i
    block       i // block = j // block
    grid        |dr|, |dc| <= radius              position p is row p // columns, column p % columns
    distance    bias = -slope |i - j|
    matrix      mask or bias of a file, a row for each query
    edges       mask of a file of edges between positions, and every position attends to itself

Causal attention has the structure in addition to its own mask: j <= i and mask_ij, scores plus bias_ij. In cross-attention i is
a position of the target, where the start token has 0, and j one of the source.

A structure is a function of positions that returns truth values, a mask, or numbers, a bias; any Python function will do:

    model.structure = FunctionStructure(lambda i, j: (i - j).abs() <= 3)     i (…, query, 1), j (…, 1, key) -> (…, query, key)

In an image the positions are its patches, row by row. [CLS] attends to all patches, and all attend to it.

It is shared by all layers of a side. A matrix belongs to the weights, so that a run folder is complete without its file.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from pydantic import model_validator
from torch import Tensor, nn

from heedful.config.base import Config, PathName, PositiveNumber, Problem, Size, refuse, unused
from heedful.errors import ConfigError, HeedfulError
from heedful.nn import masks
from heedful.nn.attention import AttentionBias
from heedful.nn.positions import PatchGrid
from heedful.nn.step_context import StepContext

PositionFunction = Callable[[Tensor, Tensor], Tensor]  # query and key positions -> mask (bool) or bias (floating point)


class StructureConfig(Config):
    causal: ClassVar[bool] = False  # whether it restricts causal attention
    of_patches: ClassVar[bool] = False  # whether its positions are the patches of an image, which has the columns of a grid
    kind: Literal["full", "window", "causal", "block", "grid", "distance", "matrix", "edges"] = "full"
    """Which tokens attend to which: all to all, or one of the structures of `nn/structure.py`."""
    radius: Size = 1
    """Window, grid: maximum distance, in a grid of rows and of columns."""
    block: Size = 16
    """Block: number of tokens of a block."""
    columns: Size = 1
    """Grid: number of columns."""
    slope: PositiveNumber = 1.0
    """Distance: what is subtracted from the scores for each token between query and key."""
    file: PathName | None = None
    """Matrix: a file .npy, or comma-separated numbers; edges: two comma- or tab-separated positions in each line, from 0."""
    positions: Size | None = None
    """Matrix, edges: number of positions, the maximum length of a sequence."""
    values: Literal["mask", "bias"] = "mask"
    """Matrix: whether its numbers are a mask, 1 where attention is allowed and 0 elsewhere, or are added to the scores."""
    directed: bool = False
    """Edges: only the second position of a line attends to the first; false: each attends to the other."""

    @model_validator(mode="after")
    def _fits_together(self) -> StructureConfig:
        used = OPTIONS[self.kind]
        problems = []
        if "file" in used:
            sizes = () if self.of_patches else ("positions", "source_positions")
            missing = [name for name in ("file", *sizes) if getattr(self, name, 0) is None]
            problems += [Problem(name, f"missing; expected a value for kind {self.kind!r}") for name in missing]
        elif "columns" in used and not self.of_patches and "columns" not in self.model_fields_set:
            problems.append(Problem("columns", "missing; expected the number of columns of the grid"))
        names = [name for name in type(self).model_fields if name not in ("kind", *used)]
        reasons = dict.fromkeys(names, f"kind {self.kind!r} does not use it")
        reasons |= {"columns": "the columns of a grid are those of the image"} if self.of_patches else {}
        refuse([*problems, *unused(self, reasons)])
        return self

    @property
    def shape(self) -> tuple[int, int] | None:
        """Query and key positions of a matrix."""
        return None if self.positions is None else (self.positions, self.positions)

    def length_problems(self, path: str, queries: int, keys: int) -> list[Problem]:
        """The problems of sequences that are longer than the matrix of the structure at this path."""
        names = "positions", "source_positions" if "source_positions" in type(self).model_fields else "positions"
        needed: dict[str, int] = {}
        for name, length in zip(names, (queries, keys), strict=True):
            needed[name] = max(length, needed.get(name, 0))
        return [
            Problem(f"{path}.{name}", f"given {given}, expected at least {length}: the sequence length")
            for name, length in needed.items()
            if (given := getattr(self, name)) is not None and given < length
        ]


class CausalStructureConfig(StructureConfig):
    causal: ClassVar[bool] = True
    kind: Literal["full", "window", "block", "grid", "distance", "matrix", "edges"] = "full"
    """Which of the tokens up to itself a token attends to: all, or one of the structures of `nn/structure.py`."""

    @model_validator(mode="after")
    def _edges_lead_to_later_positions(self) -> CausalStructureConfig:
        if self.kind == "edges" and not self.directed:
            given = "given false, expected true: in causal attention only the later position of an edge attends to the other"
            refuse([Problem("directed", given)])
        return self


class PatchStructureConfig(StructureConfig):
    """Its positions are the patches of an image, row by row."""

    of_patches: ClassVar[bool] = True
    kind: Literal["full", "grid", "matrix", "edges"] = "full"
    """Which patches attend to which: all to all, or one of the structures of `nn/structure.py`."""

    def problems_with_grid(self, grid: PatchGrid) -> list[Problem]:
        """Problems with the patches of the model; paths are relative to it."""
        patches = grid.down * grid.across
        if self.positions in (None, patches):
            return []
        return [Problem("structure.positions", f"given {self.positions}, expected {patches}: the patches of an image")]

    def over(self, grid: PatchGrid) -> PatchStructureConfig:
        """The structure over the patches of an image."""
        positions = grid.down * grid.across if "positions" in OPTIONS[self.kind] else None
        return self.model_copy(update={"columns": grid.across, "positions": positions})


class CrossStructureConfig(StructureConfig):
    kind: Literal["full", "window", "distance", "matrix"] = "full"
    """Which source tokens a target token attends to: all, or one of the structures of `nn/structure.py`."""
    source_positions: Size | None = None
    """Matrix: number of source positions, its columns."""

    @property
    def shape(self) -> tuple[int, int] | None:
        return None if self.positions is None or self.source_positions is None else (self.positions, self.source_positions)


OPTIONS: dict[str, tuple[str, ...]] = {  # that a kind uses
    "full": (),
    "window": ("radius",),
    "causal": (),
    "block": ("block",),
    "grid": ("columns", "radius"),
    "distance": ("slope",),
    "matrix": ("file", "positions", "source_positions", "values"),
    "edges": ("file", "positions", "directed"),
}


def window(config: StructureConfig, i: Tensor, j: Tensor) -> Tensor:
    return (i - j).abs() <= config.radius


def causal(config: StructureConfig, i: Tensor, j: Tensor) -> Tensor:
    return j <= i


def block(config: StructureConfig, i: Tensor, j: Tensor) -> Tensor:
    return i // config.block == j // config.block


def grid(config: StructureConfig, i: Tensor, j: Tensor) -> Tensor:
    rows = (i // config.columns - j // config.columns).abs()
    columns = (i % config.columns - j % config.columns).abs()
    return (rows <= config.radius) & (columns <= config.radius)


def distance(config: StructureConfig, i: Tensor, j: Tensor) -> Tensor:
    return (i - j).abs() * -config.slope


FUNCTIONS: dict[str, Callable[[StructureConfig, Tensor, Tensor], Tensor]] = {
    "window": window,
    "causal": causal,
    "block": block,
    "grid": grid,
    "distance": distance,
}


class Structure(nn.Module):
    """A mask or a bias of attention scores that depends on positions."""

    limit: int | None = None  # maximum number of query positions; None: unlimited
    key_limit: int | None = None  # of key positions

    def forward(self, query_positions: Tensor, key_positions: Tensor) -> AttentionBias:
        """(rows or 1, query), (rows or 1, key) -> mask or bias (rows or 1, 1, query, key)."""
        values = self.values_at(query_positions[:, :, None], key_positions[:, None, :])
        if values.dtype is torch.bool:
            return AttentionBias(mask=values[:, None])
        if values.is_floating_point():
            return AttentionBias(bias=values[:, None])
        raise ConfigError(
            f"the function of a structure returned {values.dtype}; expected bool, a mask, or floating point numbers, a bias"
        )

    def values_at(self, i: Tensor, j: Tensor) -> Tensor:
        """The mask or bias of query positions (…, query, 1) and key positions (…, 1, key)."""
        raise NotImplementedError

    def check_lengths(self, queries: int, keys: int) -> None:
        for length, limit in ((queries, self.limit), (keys, self.key_limit)):
            if limit is not None and not torch.compiler.is_compiling() and length > limit:
                raise HeedfulError(
                    f"a sequence of {length} tokens was given to a model whose attention structure has {limit} positions",
                    hint="shorten the input, or train with a structure of more positions",
                )

    if TYPE_CHECKING:
        __call__ = forward


class FunctionStructure(Structure):
    """A function of query and key positions."""

    def __init__(self, function: PositionFunction) -> None:
        super().__init__()
        self.function = function

    def values_at(self, i: Tensor, j: Tensor) -> Tensor:
        return self.function(i, j)


class MatrixStructure(Structure):
    """A number for each query and key position."""

    matrix: Tensor

    def __init__(self, queries: int, keys: int, values: Literal["mask", "bias"]) -> None:
        super().__init__()
        self.limit, self.key_limit, self.values = queries, keys, values
        self.register_buffer("matrix", torch.zeros(queries, keys))  # of a mask: 1 where attention is allowed

    def set(self, matrix: Tensor) -> None:
        """matrix (queries, keys): finite numbers; of a mask, 0 and 1, with a 1 in each row."""
        self.matrix.copy_(matrix)

    def values_at(self, i: Tensor, j: Tensor) -> Tensor:
        found = self.matrix[i, j]
        return found > 0.5 if self.values == "mask" else found  # an average of checkpoints may be close to 1


def make_structure(config: StructureConfig) -> Structure | None:
    """The structure of a config; the numbers of a matrix are set later. None: all tokens attend to all."""
    if config.kind == "full":
        return None
    if config.shape is not None:
        return MatrixStructure(*config.shape, config.values)
    return FunctionStructure(partial(FUNCTIONS[config.kind], config))


def tabulate(function: PositionFunction, positions: int) -> Tensor:
    """The matrix of a function of positions: numpy.save("mask.npy", tabulate(lambda i, j: j <= i, 64))."""
    places = torch.arange(positions)
    return function(places[:, None], places[None, :]).broadcast_to(positions, positions)


def join(*parts: AttentionBias | None) -> AttentionBias:
    """Attention that all masks allow, with the sum of all biases."""
    mask = bias = None
    for part in parts:
        if part is not None and part.mask is not None:
            mask = part.mask if mask is None else mask & part.mask
        if part is not None and part.bias is not None:
            bias = part.bias if bias is None else bias + part.bias
    return AttentionBias(mask, bias=bias)


def attention_structure(
    structure: Structure | None, positions: Tensor, attention_mask: Tensor | None = None
) -> AttentionBias | None:
    """The structure of a model at positions (rows or 1, time), with the mask of an input (rows or 1, query, key); None: all
    tokens attend to all."""
    if structure is None:
        return None if attention_mask is None else AttentionBias(attention_mask[:, None])
    structure.check_lengths(positions.shape[1], positions.shape[1])
    own = structure(positions, positions)
    return own if attention_mask is None else join(own, AttentionBias(attention_mask[:, None]))


def restrict_step(step: StepContext, structure: Structure | None) -> StepContext:
    """A step whose causal attention has the structure as well."""
    if structure is None:
        return step
    mask = step.mask
    if mask is None:  # a whole sequence
        mask = masks.causal(step.query_positions, step.key_positions)
        mask = mask if step.real is None else mask & step.real[:, None]
    own = structure(step.query_positions, step.key_positions)
    return step._replace(mask=mask if own.mask is None else mask & own.mask[:, 0], bias=own.bias)


def smallest(*limits: int | None) -> int | None:
    """The smallest of limits, of which None is none."""
    return min((limit for limit in limits if limit is not None), default=None)
