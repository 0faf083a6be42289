"""Arrays of numbers in files.

A small file is read into memory. A large one is memory-mapped: it may be as large as the disk allows, and all processes that
read it share the memory. A mapped file must never become shorter: reading a page past its end kills the process with SIGBUS,
which Python cannot catch. So mapped files are written once (`folders.find_or_build`), made read-only and only replaced by
renaming, which keeps the old content for processes that mapped it. If another program truncates one nevertheless, faulthandler
prints the line that read it.
"""

from __future__ import annotations

import faulthandler
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from heedful.errors import WriteError

IN_MEMORY = 1 << 24  # bytes; larger files are mapped


def map_array(path: Path, kind: str) -> NDArray[Any]:
    """Return a file as one array of this type."""
    size = path.stat().st_size
    if size < IN_MEMORY:  # an empty file could not be mapped anyway
        array = np.fromfile(path, kind)
        array.flags.writeable = False
        return array
    with suppress(OSError, ValueError, RuntimeError):  # stderr may be closed
        if not faulthandler.is_enabled():
            faulthandler.enable()
    return np.asarray(np.memmap(path, dtype=kind, mode="r"))  # a plain view: indexing a memmap is slow


def append_array(file: IO[bytes], array: NDArray[Any]) -> None:
    """Write the bytes of an array; unlike `ndarray.tofile`, a full disk is an error with its reason."""
    file.write(np.ascontiguousarray(array).data)


class Growing:
    """An array that grows in an unnamed temporary file, which is deleted with the last array of it."""

    def __init__(self, kind: type[np.generic]) -> None:
        self.kind, self.length = kind, 0
        self._file = temporary_file()

    def append(self, part: NDArray[Any]) -> None:
        try:
            append_array(self._file, part.astype(self.kind, copy=False))
            self._file.flush()
        except OSError as error:
            raise temporary_file_error(error) from error
        self.length += len(part)

    def array(self) -> NDArray[Any]:
        """All of it, mapped."""
        return np.asarray(np.memmap(self._file, self.kind, "r")) if self.length else np.zeros(0, self.kind)

    def close(self) -> None:
        """Close the file; arrays of it stay."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def collect(parts: Iterable[NDArray[Any]], kind: type[np.generic]) -> NDArray[Any]:
    """Concatenate arrays in an unnamed temporary file, mapped."""
    with Growing(kind) as growing:
        for part in parts:
            growing.append(part)
        return growing.array()


def temporary_file() -> Any:
    try:
        return tempfile.TemporaryFile()
    except OSError as error:
        raise temporary_file_error(error) from error


def temporary_file_error(error: OSError) -> WriteError:
    return WriteError(
        f"cannot write a temporary file to {tempfile.gettempdir()}: {error.strerror or error}",
        hint="set TMPDIR to a folder with more free space",
    )
