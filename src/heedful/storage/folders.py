"""Folders that are complete or absent.

    .tmp-NAME-…/  write every file -> flush them -> rename to NAME -> flush the parent

`new_folder` writes one this way; `find_or_build` makes it a cache entry that one process builds and all others read.
A process that is killed leaves at most a folder with a temporary name, which is removed later.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from heedful.errors import WriteError
from heedful.storage.locks import locked
from heedful.storage.writing import TEMPORARY, sync_file, sync_folder, temporary_beside, write_error

READ_ONLY = 0o444

Store = TypeVar("Store")


def publish(temporary: Path, folder: Path) -> None:
    """Rename a complete folder to its final name; a folder of that name is removed first."""
    if folder.exists() or folder.is_symlink():
        remove(folder)
    temporary.rename(folder)
    sync_folder(folder.parent)


@contextmanager
def new_folder(folder: Path, publish: Callable[[Path, Path], None] = publish) -> Iterator[Path]:
    """Yield a temporary folder to fill; when the block ends it is flushed and renamed to `folder`.

    publish: (temporary, folder) renames it; the default replaces an existing folder, which is untouched until then

    An OSError inside the block becomes a WriteError."""
    temporary = temporary_beside(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        yield temporary
        for path in temporary.rglob("*"):
            sync_folder(path) if path.is_dir() else sync_file(path)
        sync_folder(temporary)
        publish(temporary, folder)
    except OSError as error:
        raise write_error(folder, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)  # after a failure; `clear_temporary` removes the rest


def find_or_build(folder: Path, find: Callable[[Path], Store | None], build: Callable[[Path], None]) -> Store:
    """Open a cache entry, or build it while holding its lock.

    find:  opens the folder; None if it is absent or damaged
    build: fills an empty folder

    A process that waited for the lock calls `find` again: the process before it may have built the entry and mapped its files,
    which must not be replaced. OSError and WriteError pass."""
    store = find(folder)
    if store is not None:
        return store
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(_lock_file(folder), wait=True):
        store = find(folder)
        if store is not None:
            return store
        with new_folder(folder) as temporary:
            build(temporary)
            for path in temporary.iterdir():
                path.chmod(READ_ONLY)
        store = find(folder)
    assert store is not None, f"{folder} was just written"
    _clear_abandoned(folder.parent)
    return store


def remove(path: Path) -> None:
    """Remove a file, link or folder; it is renamed first, so that no part of it remains under its name."""
    current = path
    try:
        if not path.name.startswith(TEMPORARY):
            current = path.rename(temporary_beside(path))
        if current.is_dir() and not current.is_symlink():
            shutil.rmtree(current)
        else:
            current.unlink()
    except OSError as error:
        raise WriteError(
            f"{path} cannot be removed: {error.strerror or error}", hint="check the disk and the permissions of the folder"
        ) from error


def clear_temporary(folder: Path) -> None:
    """Remove the temporary files of killed processes; the caller holds the lock of the folder."""
    for path in folder.glob(f"{TEMPORARY}*"):
        remove(path)


def _lock_file(folder: Path) -> Path:
    return folder.parent / f".{folder.name}.lock"


def _clear_abandoned(cache: Path) -> None:
    """Remove temporary folders whose lock is free: their process was killed."""
    for path in cache.glob(f"{TEMPORARY}*"):
        name = path.name.removeprefix(TEMPORARY).rsplit("-", 2)[0]
        with suppress(OSError, WriteError), locked(_lock_file(cache / name), wait=False):
            remove(path)
