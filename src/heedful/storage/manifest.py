"""MANIFEST.json: the size and SHA-256 of every file of a folder, so that any changed byte is detected.

    {"format": 1, …, "files": {"ids": {"size": 1024, "sha256": "9f86d0…"}}}

It is written last: a folder without a manifest is incomplete.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heedful.storage.reading import read_bytes, reason_of, sha256_of
from heedful.storage.writing import write_text

FORMAT = 1
NAME = "MANIFEST.json"


class Damaged(Exception):
    """A folder that differs from its manifest; the message is the difference."""


def write_manifest(folder: Path, about: Mapping[str, Any]) -> None:
    """Record every file of the folder, and `about`."""
    files = {path.name: measure(path) for path in sorted(folder.iterdir())}
    write_text(folder / NAME, json.dumps({"format": FORMAT, **about, "files": files}, indent=1))


def checked_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest after comparing every file with it; OSError if there is none."""
    text = read_bytes(folder / NAME)
    try:
        manifest: dict[str, Any] = json.loads(text)
        if manifest["format"] != FORMAT:
            raise Damaged(f"its format is {manifest['format']!r}, expected {FORMAT}")
        for name, expected in manifest["files"].items():
            check_file(folder / name, expected["size"], expected["sha256"])
        return manifest
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Damaged(f"its manifest is invalid ({error})") from error


def measure(path: Path) -> dict[str, Any]:
    """Size and SHA-256 of a file, read back from the disk."""
    return {"size": path.stat().st_size, "sha256": sha256_of(path)}


def check_file(path: Path, size: int, sha256: str) -> None:
    """Compare a file with its record, reading all of it."""
    check_size(path, size)
    try:
        digest = sha256_of(path)
    except OSError as error:
        raise _unreadable(path, error) from error
    _compare(path, sha256, digest)


def read_checked(path: Path, size: int, sha256: str, *, limit: int | None = None) -> bytes:
    """The content of a file that agrees with its record; it is read once. limit: as of `read_bytes`."""
    check_size(path, size)
    try:
        content = read_bytes(path, limit)
    except OSError as error:
        raise _unreadable(path, error) from error
    _compare(path, sha256, hashlib.sha256(content).hexdigest())
    return content


def check_size(path: Path, size: int) -> None:
    try:
        actual = path.stat().st_size
    except OSError as error:
        raise _unreadable(path, error) from error
    if actual != size:
        raise Damaged(f"{path.name} has {actual:,} bytes, expected {size:,}")


def seal(body: Mapping[str, Any]) -> str:
    """JSON text that ends with its own SHA-256."""
    plain = json.loads(json.dumps(body))
    canonical = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return json.dumps(plain | {"sha256": hashlib.sha256(canonical.encode()).hexdigest()}, indent=1) + "\n"


def _compare(path: Path, expected: str, digest: str) -> None:
    if digest != expected:
        raise Damaged(f"{path.name} is damaged: its SHA-256 differs from the one in {NAME}")


def _unreadable(path: Path, error: OSError) -> Damaged:
    return Damaged(
        f"{path.name} is missing" if isinstance(error, FileNotFoundError) else f"{path.name} cannot be read: {reason_of(error)}"
    )
