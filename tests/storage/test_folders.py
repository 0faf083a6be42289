"""A folder is complete or absent; a cache entry is built once, by one process, and is read-only."""

from __future__ import annotations

from pathlib import Path

from heedful.storage.folders import find_or_build
from heedful.storage.locks import locked


def find(folder: Path) -> str | None:
    return (folder / "text").read_text() if (folder / "text").exists() else None


def write(folder: Path) -> None:
    (folder / "text").write_text("made")


def test_a_store_is_made_once_and_read_only(tmp_path: Path) -> None:
    assert find_or_build(tmp_path / "cache" / "a", find, write) == "made"
    assert (tmp_path / "cache" / "a" / "text").stat().st_mode & 0o222 == 0

    def fail(folder: Path) -> None:
        raise AssertionError("it is there already")

    assert find_or_build(tmp_path / "cache" / "a", find, fail) == "made"


def test_a_store_that_another_process_made_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    """A second process that found nothing waits for the lock, and must look again: the first has the store mapped."""
    looks = []

    def find_later(folder: Path) -> str | None:
        looks.append(folder)
        return "theirs" if len(looks) > 1 else None

    def fail(folder: Path) -> None:
        raise AssertionError("it would replace a store that is in use")

    assert find_or_build(tmp_path / "a", find_later, fail) == "theirs"


def test_what_killed_processes_left_is_removed_and_what_is_being_written_stays(tmp_path: Path) -> None:
    for name in (".tmp-old-1-ab", ".tmp-busy-1-ab"):
        (tmp_path / name).mkdir()
    with locked(tmp_path / ".busy.lock", wait=False):
        find_or_build(tmp_path / "new", find, write)
        assert sorted(path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")) == [".tmp-busy-1-ab", "new"]
