"""The files of an attention structure (`nn/structure.py`): a matrix of numbers, or a list of edges between positions.

mask.npy       an array (positions, positions), written by numpy.save
bias.csv       a line for each query, a number for each key, separated by commas or tabs
edges.csv      two positions in each line, from 0; the first line may be a header
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from heedful.data.delimited import Row, read_rows
from heedful.data.sources import find_path
from heedful.errors import DataError
from heedful.nn.structure import StructureConfig
from heedful.storage.reading import read_bytes, unreadable

Matrix = NDArray[np.float32]  # (query positions, key positions)


def read_structure(config: StructureConfig, option: str = "model.structure") -> Matrix:
    """The matrix of the file of a structure: of a mask, 1 where attention is allowed. option: that of the structure."""
    assert config.file is not None and config.shape is not None, "the config requires both"
    path = find_path(config.file)
    if config.kind == "edges":
        return read_edge_mask(path, config, option)
    matrix = read_array(path) if path.suffix == ".npy" else read_numbers(path)
    check_matrix(matrix, str(path), config, option)
    return matrix.astype(np.float32)


def read_array(path: Path) -> NDArray[np.float64]:
    try:
        found = np.load(io.BytesIO(read_bytes(path)), allow_pickle=False)
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, EOFError) as error:
        raise DataError(f"{path} is not an array of numbers", hint="write one with numpy.save") from error
    if not isinstance(found, np.ndarray) or found.dtype.kind not in "biuf":
        kind = found.dtype if isinstance(found, np.ndarray) else "an archive"
        raise DataError(f"{path} has values of type {kind}; expected numbers, or truth values")
    return found.astype(np.float64)


def read_numbers(path: Path) -> NDArray[np.float64]:
    rows: list[list[float]] = []
    for row in read_rows(path):
        if rows and len(row.cells) != len(rows[0]):
            raise DataError(f"{row.place} has {len(row.cells)} numbers; expected {len(rows[0])}, as in the first line")
        rows.append([number_of(cell, row) for cell in row.cells])
    return np.array(rows)


def number_of(cell: str, row: Row) -> float:
    try:
        return float(cell)
    except ValueError:
        raise DataError(f"{row.place}: {cell!r:.40} is not a number; expected a number for each position") from None


def check_matrix(matrix: NDArray[np.float64], name: str, config: StructureConfig, option: str) -> None:
    """An error for a matrix of another shape, with values that are not finite, or for a mask that is none."""
    is_mask = config.values == "mask"
    if matrix.shape != config.shape:
        given, expected = (" x ".join(map(str, shape)) or "a single number" for shape in (matrix.shape, config.shape or ()))
        raise DataError(
            f"{name} is {given}; expected {expected}, as set in {option}",
            hint=f"correct the file, or set {option}.positions to its size",
        )
    wrong = ~np.isfinite(matrix)
    if is_mask:
        wrong |= (matrix != 0) & (matrix != 1)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        expected = "0 or 1" if is_mask else "a finite number"
        hint = f'set {option}.values = "bias" if the numbers are added to the scores' if is_mask else None
        raise DataError(f"{name} has {matrix[row, column]:g} in row {row}, column {column}; expected {expected}", hint=hint)
    allowed = (np.tril(matrix) if config.causal else matrix).any(1)
    if is_mask and not allowed.all():
        where = "its row has no 1 up to its own column" if config.causal else "its row has no 1"
        raise DataError(
            f"{name} allows position {int(np.flatnonzero(~allowed)[0])} no attention: {where}; expected at least one",
            hint="let every position attend to itself",
        )


def read_edge_mask(path: Path, config: StructureConfig, option: str) -> Matrix:
    """Edges and all positions themselves; the second position of an edge attends to the first."""
    assert config.positions is not None, "the config requires it"
    mask = np.eye(config.positions, dtype=np.float32)
    for number, row in enumerate(read_rows(path)):
        if len(row.cells) != 2:
            given = f"{len(row.cells)} column{'s' * (len(row.cells) != 1)}"
            raise DataError(f"{row.place} has {given}; expected 2, the positions of an edge, separated by a comma or a tab")
        if number == 0 and not any(cell.lstrip("-").isdecimal() for cell in row.cells):
            continue  # a header
        first, second = (position_of(cell, row, config.positions, option) for cell in row.cells)
        if config.causal and first > second:
            raise DataError(
                f"{row.place} has an edge from {first} to {second}, an earlier position, which cannot attend to a later one; "
                "expected the earlier position first"
            )
        mask[second, first] = 1
        if not config.directed:
            mask[first, second] = 1
    return mask


def position_of(cell: str, row: Row, positions: int, option: str) -> int:
    if not cell.isdecimal() or int(cell) >= positions:
        raise DataError(
            f"{row.place}: {cell!r:.40} is no position; expected a number from 0 to {positions - 1}",
            hint=f"correct the edge, or set {option}.positions to the number of positions",
        )
    return int(cell)
