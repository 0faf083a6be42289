"""A manifest detects every difference between a folder and its record."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from heedful.storage.manifest import NAME, Damaged, checked_manifest, read_checked, seal, write_manifest

DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a changed byte": (lambda folder: (folder / "ids").write_bytes(b"13"), "ids is damaged: its SHA-256 differs"),
    "another size": (lambda folder: (folder / "ids").write_bytes(b"123"), "ids has 3 bytes, expected 2"),
    "a missing file": (lambda folder: (folder / "ids").unlink(), "ids is missing"),
    "no JSON": (lambda folder: (folder / NAME).write_text("{"), "its manifest is invalid"),
    "another format": (lambda folder: (folder / NAME).write_text('{"format": 9}'), "its format is 9, expected 1"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ids").write_bytes(b"12")
    write_manifest(tmp_path, {"type": "uint8"})
    return tmp_path


def test_the_manifest_has_the_size_and_hash_of_every_file(folder: Path) -> None:
    digest = sha256(b"12").hexdigest()
    files = {"ids": {"size": 2, "sha256": digest}}
    assert checked_manifest(folder) == {"format": 1, "type": "uint8", "files": files}
    assert read_checked(folder / "ids", 2, digest) == b"12"


@pytest.mark.parametrize("name", DAMAGE)
def test_every_difference_is_detected(name: str, folder: Path) -> None:
    damage, message = DAMAGE[name]
    damage(folder)
    with pytest.raises(Damaged, match=message):
        checked_manifest(folder)


def test_a_folder_without_a_manifest_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        checked_manifest(tmp_path)


def test_sealed_json_ends_with_the_hash_of_its_content() -> None:
    body = json.loads(seal({"b": 1, "a": [2]}))
    assert list(body) == ["b", "a", "sha256"]
    assert body["sha256"] == sha256(b'{"a":[2],"b":1}').hexdigest()
