"""Translated files, kept in memory for a short time under names that cannot be guessed."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from time import monotonic

MAX_BYTES = 2**24
SECONDS = 600.0


class Downloads:
    """The most recent files."""

    def __init__(self) -> None:
        self.files: OrderedDict[str, tuple[float, bytes]] = OrderedDict()

    def add(self, content: bytes) -> str:
        """Keep a file and return its name; older ones are dropped to make room."""
        name = f"{secrets.token_urlsafe(32)}.txt"
        self.files[name] = monotonic() + SECONDS, content
        while sum(len(kept) for _, kept in self.files.values()) > MAX_BYTES:
            self.files.popitem(last=False)
        return name

    def get(self, name: str) -> bytes | None:
        """A file that is still kept."""
        for old in [known for known, (until, _) in self.files.items() if until < monotonic()]:
            del self.files[old]
        found = self.files.get(name)
        return None if found is None else found[1]
