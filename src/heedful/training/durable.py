"""Writing that survives: a file is whole or absent, and what was reported as written is on the disk.

write, fsync the file      the bytes are on the disk
rename                     readers see the old or the new, never a half
fsync the folder           the name is on the disk"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from pathlib import Path

TEMPORARY = ".tmp-"  # whatever begins so belongs to a process that is writing, or to one that was killed


def temporary_beside(path: Path) -> Path:
    """A fresh name in the same folder (hence the same disk, so that a rename is atomic)."""
    return path.with_name(f"{TEMPORARY}{path.name}-{os.getpid()}-{secrets.token_hex(4)}")


def sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network disks cannot sync a folder
            raise
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Write a new file and wait until it is on the disk."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def replace_text(path: Path, text: str) -> None:
    """Put `text` in the place of the file: a reader, or a crash, finds the old or the new content."""
    temporary = temporary_beside(path)
    try:
        write_text(temporary, text)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def remove(path: Path) -> None:
    """Remove a file, link or folder so that no half of it is ever seen under its name."""
    if not path.name.startswith(TEMPORARY):
        path = path.rename(temporary_beside(path))
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
