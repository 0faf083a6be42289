"""Arrays of numbers in files, memory-mapped: as large as the disk allows, and shared by all processes that read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def map_array(path: Path, kind: str) -> NDArray[Any]:
    """The whole file as one array of this type."""
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.zeros(0, kind)
    return np.asarray(np.memmap(path, dtype=kind, mode="r"))  # a plain view: indexing a memmap is slow
