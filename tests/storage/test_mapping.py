"""Small files are read, large ones mapped; a store is written once, by one process, and is read-only."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from heedful.storage import mapping
from heedful.storage.locks import locked
from heedful.storage.mapping import collect, find_or_make, map_array


def write_numbers(path: Path, count: int) -> Path:
    np.arange(count, dtype=np.uint16).tofile(path)
    return path


def test_a_small_file_may_be_truncated_while_its_numbers_are_used(tmp_path: Path) -> None:
    path = write_numbers(tmp_path / "ids", 5000)
    array = map_array(path, "uint16")
    os.truncate(path, 0)
    assert array.sum() == sum(range(5000))


@pytest.mark.parametrize("count", [0, 1, 3000])
def test_read_and_mapped_arrays_are_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    path = write_numbers(tmp_path / "ids", count)
    read = map_array(path, "uint16")
    monkeypatch.setattr(mapping, "IN_MEMORY", 1)
    assert np.array_equal(map_array(path, "uint16"), read)
    assert not read.flags.writeable


def test_a_temporary_array_is_all_parts_one_after_the_other() -> None:
    parts = [np.array([1, 2], np.int32), np.zeros(0, np.int32), np.array([3], np.int32)]
    assert collect(parts, np.int32).tolist() == [1, 2, 3]
    assert collect([], np.int32).tolist() == []


def find(folder: Path) -> str | None:
    return (folder / "text").read_text() if (folder / "text").exists() else None


def write(folder: Path) -> None:
    (folder / "text").write_text("made")


def test_a_store_is_made_once_and_read_only(tmp_path: Path) -> None:
    assert find_or_make(tmp_path / "cache" / "a", find, write) == "made"
    assert (tmp_path / "cache" / "a" / "text").stat().st_mode & 0o222 == 0

    def fail(folder: Path) -> None:
        raise AssertionError("it is there already")

    assert find_or_make(tmp_path / "cache" / "a", find, fail) == "made"


def test_a_store_that_another_process_made_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    """A second process that found nothing waits for the lock, and must look again: the first has the store mapped."""
    looks = []

    def find_later(folder: Path) -> str | None:
        looks.append(folder)
        return "theirs" if len(looks) > 1 else None

    def fail(folder: Path) -> None:
        raise AssertionError("it would replace a store that is in use")

    assert find_or_make(tmp_path / "a", find_later, fail) == "theirs"


def test_what_killed_processes_left_is_removed_and_what_is_being_written_stays(tmp_path: Path) -> None:
    for name in (".tmp-old-1-ab", ".tmp-busy-1-ab"):
        (tmp_path / name).mkdir()
    with locked(tmp_path / ".busy.lock", wait=False):
        find_or_make(tmp_path / "new", find, write)
        assert sorted(path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")) == [".tmp-busy-1-ab", "new"]
