"""Arrays of numbers in files.

A small file is read into memory. A large one is memory-mapped: as large as the disk allows, and shared by all processes
that read it. A mapped file must never become shorter: touching a page that is gone ends the process with SIGBUS, which no
Python code can catch. So what we map is written once (`store_folder`), made read-only and only ever replaced by renaming,
which leaves the old content to those who mapped it. If another program truncates it nevertheless, faulthandler prints which
line was reading.
"""

from __future__ import annotations

import faulthandler
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.errors import WriteError

IN_MEMORY = 1 << 28  # bytes; larger files are mapped


def map_array(path: Path, kind: str) -> NDArray[Any]:
    """The whole file as one array of this type."""
    size = path.stat().st_size
    if size < IN_MEMORY:  # an empty file could not be mapped anyway
        array = np.fromfile(path, kind)
        array.flags.writeable = False
        return array
    with suppress(OSError, ValueError, RuntimeError):  # stderr may be closed
        if not faulthandler.is_enabled():
            faulthandler.enable()
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
                raise temporary_file_error(error) from error
            total += len(part)
        return np.asarray(np.memmap(file, kind, "r")) if total else np.zeros(0, kind)


def temporary_file() -> Any:
    try:
        return tempfile.TemporaryFile()
    except OSError as error:
        raise temporary_file_error(error) from error


def temporary_file_error(error: OSError) -> WriteError:
    return WriteError(
        f"a temporary file cannot be written to {tempfile.gettempdir()}: {error.strerror or error}",
        hint="set TMPDIR to a folder with more room",
    )
