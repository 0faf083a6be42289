"""A file is replaced completely or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from heedful.errors import ConfigError, WriteError
from heedful.storage.folders import clear_temporary, new_folder, remove
from heedful.storage.writing import append_line, output_file, replace_text, sync_folder


def test_replacing_writes_the_new_content_and_leaves_no_temporary_file(tmp_path: Path) -> None:
    for text in ("old\n", "new ß\n"):
        replace_text(tmp_path / "file", text)
        assert (tmp_path / "file").read_bytes() == text.encode()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_failed_replacement_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_text(tmp_path / "file", "old")

    def failing(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(WriteError, match="No space left"):
        replace_text(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_disk_that_cannot_flush_folders_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def refusing(descriptor: int) -> None:
        asked.append(descriptor)
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "fsync", refusing)
    sync_folder(tmp_path)
    assert len(asked) == 1


def test_removing_a_link_leaves_what_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    remove(tmp_path / "link")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    remove(tmp_path / "folder")
    assert list(tmp_path.iterdir()) == []


class Stop(Exception):
    pass


def test_an_output_is_complete_or_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("old")
    path.chmod(0o640)
    with pytest.raises(Stop), output_file(path) as file:
        file.write("half")
        raise Stop
    assert path.read_text() == "old"
    with output_file(path) as file:
        file.write("new ß\n")
        assert path.read_text() == "old"
    assert path.read_bytes() == "new ß\n".encode()
    assert path.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_output_through_a_link_keeps_the_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    with output_file(tmp_path / "link") as file:
        file.write("text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "text"


def test_an_output_that_cannot_be_opened_is_refused_before_the_work() -> None:
    for path in (Path("/no/such/folder/file"), Path("/tmp")):
        with pytest.raises(WriteError, match="cannot be written") as error, output_file(path):
            raise AssertionError("the block must not run")
        assert error.value.exit_code == 4


def test_a_full_device_is_a_clear_error() -> None:
    with (
        pytest.raises(WriteError, match="/dev/full cannot be written: No space left on device"),
        output_file(Path("/dev/full")) as file,
    ):
        file.write("text")
    with pytest.raises(WriteError, match="No space left"):
        append_line(Path("/dev/full"), "text")


def test_a_folder_is_complete_and_replaces_the_old_one(tmp_path: Path) -> None:
    for text in ("old", "new"):
        with new_folder(tmp_path / "folder") as folder:
            (folder / "file").write_text(text)
    with pytest.raises(Stop), new_folder(tmp_path / "folder") as folder:
        (folder / "file").write_text("half")
        raise Stop
    assert (tmp_path / "folder" / "file").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_temporary_files_of_killed_processes_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".tmp-config.toml-1-abc").touch()
    (tmp_path / ".tmp-step-1-abc").mkdir()
    (tmp_path / "config.toml").touch()
    clear_temporary(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]


def test_an_output_does_not_overwrite_a_file_of_a_run(tmp_path: Path) -> None:
    for name in ("run.json", "config.toml"):
        (tmp_path / name).write_text("kept")
    with pytest.raises(ConfigError, match="is a file of a run folder"), output_file(tmp_path / "config.toml"):
        raise AssertionError("the block must not run")
    with output_file(tmp_path / "new.txt") as file:
        file.write("text")
    assert (tmp_path / "config.toml").read_text() == "kept"
