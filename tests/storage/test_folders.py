"""A folder is complete or absent; a cache entry is built once, by one process, and is read-only."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from heedful.errors import WriteError
from heedful.storage.folders import find_or_build, remove
from heedful.storage.locks import locked


def find(folder: Path) -> str | None:
    return (folder / "text").read_text() if (folder / "text").exists() else None


def write(folder: Path) -> None:
    (folder / "text").write_text("built")


def test_an_entry_is_built_once_and_read_only(tmp_path: Path) -> None:
    assert find_or_build(tmp_path / "cache" / "a", find, write) == "built"
    assert (tmp_path / "cache" / "a" / "text").stat().st_mode & 0o222 == 0

    def fail(folder: Path) -> None:
        raise AssertionError("the entry exists")

    assert find_or_build(tmp_path / "cache" / "a", find, fail) == "built"


def test_an_entry_that_another_process_built_first_is_not_replaced(tmp_path: Path) -> None:
    """After waiting for the lock, `find` is called again: the other process has mapped the files."""
    calls = []

    def find_later(folder: Path) -> str | None:
        calls.append(folder)
        return "built by another" if len(calls) > 1 else None

    def fail(folder: Path) -> None:
        raise AssertionError("this would replace an entry in use")

    assert find_or_build(tmp_path / "a", find_later, fail) == "built by another"


def test_temporary_folders_of_killed_processes_are_removed_and_locked_ones_stay(tmp_path: Path) -> None:
    for name in (".tmp-old-1-ab", ".tmp-busy-1-ab"):
        (tmp_path / name).mkdir()
    with locked(tmp_path / ".busy.lock", wait=False):
        find_or_build(tmp_path / "new", find, write)
        assert sorted(path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")) == [".tmp-busy-1-ab", "new"]


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS, errno.EACCES])
def test_a_folder_that_cannot_be_removed_is_one_sentence(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(shutil, "rmtree", fail)
    (tmp_path / "step-1").mkdir()
    with pytest.raises(WriteError, match=f"step-1 cannot be removed: {os.strerror(code)}"):
        remove(tmp_path / "step-1")
