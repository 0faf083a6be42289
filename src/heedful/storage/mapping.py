"""Arrays of numbers in files, memory-mapped: as large as the disk allows, and shared by all processes that read them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.errors import WriteError


def map_array(path: Path, kind: str) -> NDArray[Any]:
    """The whole file as one array of this type."""
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.zeros(0, kind)
    return np.asarray(np.memmap(path, dtype=kind, mode="r"))  # a plain view: indexing a memmap is slow


def collect(parts: Iterable[NDArray[Any]], kind: type[np.generic]) -> NDArray[Any]:
    """The arrays one after the other, mapped from a temporary file that has no name and goes with the result."""
    total = 0
    with temporary_file() as file:
        for part in parts:
            try:
                part.astype(kind, copy=False).tofile(file)
                file.flush()
            except OSError as error:
                raise no_room(error) from error
            total += len(part)
        return np.asarray(np.memmap(file, kind, "r")) if total else np.zeros(0, kind)


def temporary_file() -> Any:
    try:
        return tempfile.TemporaryFile()
    except OSError as error:
        raise no_room(error) from error


def no_room(error: OSError) -> WriteError:
    return WriteError(
        f"a temporary file cannot be written to {tempfile.gettempdir()}: {error.strerror or error}",
        hint="set TMPDIR to a folder with more room",
    )
