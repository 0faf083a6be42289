"""A file is replaced whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from heedful.training.durable import remove, replace_text, sync_folder


def test_replacing_gives_the_new_content_and_leaves_nothing_else(tmp_path: Path) -> None:
    for text in ("old\n", "new ß\n"):
        replace_text(tmp_path / "file", text)
        assert (tmp_path / "file").read_bytes() == text.encode()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_failed_replacement_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_text(tmp_path / "file", "old")

    def failing(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError, match="No space left"):
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
