"""The split of a generated example: SHA-256 of its text, as a number, modulo 20: 0 is test, 1 is valid, the rest is train."""

from __future__ import annotations

from hashlib import sha256
from typing import Literal

Split = Literal["train", "valid", "test"]


def split_of(text: str) -> Split:
    """Return the split of an example with this text: 90% are in train, 5% in valid, 5% in test."""
    bucket = int.from_bytes(sha256(text.encode()).digest()[:8]) % 20
    return "test" if bucket == 0 else "valid" if bucket == 1 else "train"
