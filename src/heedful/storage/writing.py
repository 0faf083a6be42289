"""Atomic and durable writes: a file is complete or absent, and what was reported as written is on the disk.

    write to a temporary file, fsync     the bytes are on the disk
    rename                               readers see the old or the new content, never a part
    fsync the folder                     the name is on the disk

A write that fails (full disk, file limit, read-only folder) removes its temporary file and raises a WriteError.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from heedful.errors import ConfigError, WriteError

TEMPORARY = ".tmp-"  # prefix of files that a process is writing, or left when it was killed


def temporary_beside(path: Path) -> Path:
    """A new name in the same folder, hence on the same disk, so that a rename is atomic."""
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


def write_error(path: Path | str, error: OSError) -> WriteError:
    """The WriteError for a failed write."""
    hint = "check the permissions of the folder" if error.errno != errno.EBADF else None
    if error.errno == errno.EISDIR:
        hint = "move the folder of that name away"
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        hint = "choose a file in an existing folder"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        hint = "free some disk space or raise the limit, then run the command again"
    return WriteError(f"{path} cannot be written: {error.strerror or error}", hint=hint)


def require_folder(path: Path) -> None:
    """Raise the WriteError of a file whose folder does not exist."""
    if not path.parent.is_dir():
        number = errno.ENOTDIR if path.parent.exists() else errno.ENOENT
        raise write_error(path, OSError(number, os.strerror(number)))


@contextmanager
def output_file(path: Path) -> Iterator[TextIO]:
    """Write a text file for the user: complete when the block ends, unchanged if the block fails.

    A path that cannot be written fails here, before any work is done. A pipe or device is written to directly."""
    with _output(path) as file, open(file.fileno(), "w", encoding="utf-8", newline="\n", closefd=False) as text:
        yield text


@contextmanager
def output_bytes(path: Path) -> Iterator[BinaryIO]:
    """As `output_file`, for bytes."""
    with _output(path) as file:
        yield file


@contextmanager
def _output(path: Path) -> Iterator[BinaryIO]:
    path = Path(os.path.realpath(path))  # a link stays a link
    if path.is_file() and (path.parent / "run.json").exists():
        raise ConfigError(f"{path} is a file of a run folder, which would no longer work", hint="choose another name")
    regular = not path.exists() or stat.S_ISREG(path.stat().st_mode)
    temporary = temporary_beside(path) if regular else path
    try:
        file = temporary.open("wb")
    except OSError as error:
        raise write_error(path, error) from error
    try:
        with file:
            yield file
            file.flush()
            if regular:
                os.fsync(file.fileno())
        if regular:
            _keep_mode(path, temporary)
            temporary.replace(path)
            sync_folder(path.parent)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        if regular:
            temporary.unlink(missing_ok=True)


def _keep_mode(path: Path, temporary: Path) -> None:
    if path.exists():
        shutil.copymode(path, temporary)


def write_text(path: Path, text: str) -> None:
    """Write a new file and flush it to the disk."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """As `write_text`, for bytes."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def create(path: Path) -> BinaryIO:
    """Open a new file inside a folder that `new_folder` flushes and renames."""
    return path.open("wb")


def replace_text(path: Path, text: str) -> None:
    """Replace the content of a file: a reader, or a crash, sees the old or the new content."""
    replace_bytes(path, text.encode())


def replace_bytes(path: Path, content: bytes) -> None:
    """As `replace_text`, for bytes."""
    _replace(path, lambda temporary: write_bytes(temporary, content))


def replace_link(path: Path, target: str) -> None:
    """Point the symbolic link `path` at `target`: a reader, or a crash, sees the old or the new link."""
    _replace(path, lambda temporary: temporary.symlink_to(target))


def _replace(path: Path, write: Callable[[Path], None]) -> None:
    temporary = temporary_beside(path)
    try:
        write(temporary)
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def append_line(path: Path, line: str) -> None:
    """Append one line in one write, so that a killed process leaves at most an incomplete last line."""
    try:
        with path.open("ab", buffering=0) as file:
            content = f"{line}\n".encode()
            if cast(int, file.write(content)) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        raise write_error(path, error) from error


def can_write(folder: Path) -> bool:
    """Whether a file can be created in the folder."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
