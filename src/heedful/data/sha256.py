"""The SHA-256 of a file, read piece by piece."""

from __future__ import annotations

from hashlib import file_digest
from pathlib import Path


def sha256_of(path: Path) -> str:
    with path.open("rb") as stream:
        return file_digest(stream, "sha256").hexdigest()
